# What ./dev check does; sourced by it. Each check says how many things it looked at, so that one that
# looked at nothing is noticed.
# shellcheck disable=SC2154  # root, cache and jobs are set there

all_checks=(format layers shell docs tidy)

# Tracked files plus new ones that are not ignored, by glob.
our_files() { git -C "$root" ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
  [[ -f $root/$file ]] && printf '%s\n' "$file"
done; }

check_format() {
  local files
  mapfile -t files < <(our_files '*.cc' '*.h')
  if [[ $fix == yes ]]; then
    (cd "$root" && clang-format-19 -i "${files[@]}")
  else
    (cd "$root" && clang-format-19 --dry-run -Werror "${files[@]}") ||
      fail "some files are not as clang-format writes them: ./dev check --fix format"
  fi
  say "format: ${#files[@]} files"
}

check_layers() { python3 -B "$root/scripts/check_layers.py" "$root"; }

check_shell() {
  local scripts script
  mapfile -t scripts < <({ our_files '*.sh' dev .ci/run; our_files scripts | while read -r file; do
    [[ $(head -c 40 "$root/$file") == '#!'*sh* ]] && printf '%s\n' "$file"
  done; } | sort -u)
  for script in "${scripts[@]}"; do bash -n "$root/$script"; done
  if command -v shellcheck >/dev/null; then
    (cd "$root" && shellcheck --shell=bash --external-sources --severity=warning "${scripts[@]}")
    say "shell: ${#scripts[@]} scripts"
  else
    say "shell: ${#scripts[@]} scripts parse; shellcheck is not installed (./dev setup)"
  fi
}

check_docs() {
  python3 -B "$root/scripts/check_docs.py" "$root" --programs "$root/build/release/bin"
}

# clang-tidy reads the clang build's commands, with its precompiled torch header: a third of the time.
check_tidy() {
  configure asan
  configure fuzz
  python3 -B "$root/scripts/tidy.py" "$root" --cache "$cache/tidy" --jobs "$jobs" \
    --build "$root/build/asan" --build "$root/build/fuzz" "${tidy_options[@]}"
}

check() {
  local wanted=() what
  tidy_options=() fix=no
  while (($#)); do
    what=$1
    shift
    case $what in
      --all) tidy_options+=(--all) ;;
      --minutes)
        [[ ${1:-} =~ ^[0-9]+$ ]] || fail "--minutes needs a whole number of minutes"
        tidy_options+=(--minutes "$1")
        shift
        ;;
      --fix) fix=yes ;;
      *)
        [[ " ${all_checks[*]} " == *" $what "* ]] || fail "there is no check '$what'; there are: ${all_checks[*]}"
        wanted+=("$what")
        ;;
    esac
  done
  ((${#wanted[@]})) || wanted=("${all_checks[@]}")
  for what in "${wanted[@]}"; do "check_$what"; done
}
