#!/usr/bin/env bash
# Fetches the full data sets of the examples into data/ (which git ignores).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/fetch_data.sh [--from DIR] [--into DIR] [SET...]

Sets: mnist, fashion-mnist, tinyshakespeare; all three if none is named.

  --from DIR   take them from a local folder laid out as DIR/mnist, DIR/fashion-mnist and
               DIR/tinyshakespeare, files gzipped or not, instead of the internet
  --into DIR   where to put them; default: data, next to this script's folder

Every file is checked: MNIST and tiny Shakespeare by the SHA-256 of their uncompressed contents,
Fashion-MNIST, when it comes from the internet, by the MD5 sums that torchvision checks it by.
Fashion-MNIST from a local folder is taken as it is, because other splits than the
official one are in use: compare accuracies only between runs on the same split.
A file that is there already and right is left alone.
TEXT
}

die() { echo "fetch_data: $*" >&2; exit 1; }

mnist_url=https://ossci-datasets.s3.amazonaws.com/mnist
fashion_url=http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
shakespeare_url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare

# SHA-256 of the uncompressed contents.
declare -A contents=(
  [mnist/train-images-idx3-ubyte]=ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
  [mnist/train-labels-idx1-ubyte]=65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
  [mnist/t10k-images-idx3-ubyte]=0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
  [mnist/t10k-labels-idx1-ubyte]=ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
  [tinyshakespeare/input.txt]=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
)
# MD5 of the gzipped files of the official Fashion-MNIST split (60,000 + 10,000).
declare -A official=(
  [fashion-mnist/train-images-idx3-ubyte]=8d4fb7e6c68d591d4c3dfef9ec88bf0d
  [fashion-mnist/train-labels-idx1-ubyte]=25c81989df183df01b3e8a0aad5dffbe
  [fashion-mnist/t10k-images-idx3-ubyte]=bef4ecab320f06d8554ea6380940ec79
  [fashion-mnist/t10k-labels-idx1-ubyte]=bb300cfdad3c16e7a12a480ee83cd310
)

gzipped() { [[ $(head -c 2 "$1" | od -An -tx1) == " 1f 8b" ]]; }

# Prints a file's contents, gunzipped if it is gzipped.
unpacked() { if gzipped "$1"; then gzip -dc "$1"; else cat "$1"; fi; }

# right FILE NAME: whether FILE is the NAME that we know. What we know no sum of must unpack.
right() {
  local sum
  if [[ -n ${contents[$2]:-} ]]; then
    sum=$(unpacked "$1" 2>/dev/null | sha256sum) || return 1
    [[ ${sum%% *} == "${contents[$2]}" ]]
  elif [[ -z $from && -n ${official[$2]:-} ]]; then
    sum=$(md5sum <"$1")
    [[ ${sum%% *} == "${official[$2]}" ]]
  else
    unpacked "$1" >/dev/null 2>&1
  fi
}

# place NAME TARGET URL: brings one file, checks it, and only then gives it its name.
place() {
  local name=$1 target=$into/$2 url=$3 part
  if [[ -f $target ]] && right "$target" "$name"; then
    echo "$2: is there"
    return
  fi
  mkdir -p "$(dirname "$target")"
  part=$target.part
  if [[ -n $from ]]; then
    local source=$from/$name
    [[ -f $source ]] || source=$from/$name.gz
    [[ -f $source ]] || die "there is neither $from/$name nor $from/$name.gz"
    if [[ $target != *.gz ]]; then
      unpacked "$source" >"$part" || die "$source is damaged"
    elif gzipped "$source"; then
      cp "$source" "$part"
    else
      gzip -n <"$source" >"$part"
    fi
  else
    curl --fail --location --silent --show-error --retry 3 --output "$part" "$url" ||
      die "cannot fetch $url; try again later, or use --from with a local copy"
  fi
  right "$part" "$name" || { rm -f "$part"; die "$2 is not what it should be; nothing was kept"; }
  mv "$part" "$target"
  echo "$2: ok"
}

from=
into=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/data
sets=()
while (($#)); do
  case $1 in
    --from | --into)
      (($# >= 2)) || die "$1 needs a directory"
      if [[ $1 == --from ]]; then from=$2; else into=$2; fi
      shift 2
      ;;
    -h | --help) usage; exit ;;
    mnist | fashion-mnist | tinyshakespeare) sets+=("$1"); shift ;;
    *) usage >&2; die "'$1' is neither an option nor a set" ;;
  esac
done
((${#sets[@]})) || sets=(mnist fashion-mnist tinyshakespeare)
[[ -z $from || -d $from ]] || die "there is no directory $from"
[[ -n $from ]] || command -v curl >/dev/null || die "curl is needed: apt-get install curl"

for set in "${sets[@]}"; do
  case $set in
    mnist) url=$mnist_url ;;
    fashion-mnist) url=$fashion_url ;;
    tinyshakespeare)
      place tinyshakespeare/input.txt tinyshakespeare/input.txt "$shakespeare_url/input.txt"
      continue
      ;;
  esac
  for file in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
    place "$set/$file" "$set/$file.gz" "$url/$file.gz"
  done
done
if [[ -n $from && " ${sets[*]} " == *" fashion-mnist "* ]]; then
  echo "note: fashion-mnist was taken as it is; its split may differ from the official one"
fi
