#!/usr/bin/env bash
# Bring the JavaScript libraries of the page into arena/page/static/vendor/: launch/vendor.sh
#
# Takes them from the npm registry, as released and unchanged, and writes their versions, licences and SHA-256 into the
# README there. To change a version, change it below, run this, and look at the page. Needs npm (Debian: apt install
# npm); users of the page need neither it nor a network.

set -euo pipefail

root=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
case ${1:-} in
    --help | -h)
        sed -n '2,/^$/{s/^# \{0,1\}//p;}' "$0"
        exit 0
        ;;
esac

vendor=$root/arena/page/static/vendor
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
# Package, version, file in it, file here, licence, what it is for.
libraries=(
    "htm|3.1.1|preact/standalone.module.js|preact-htm.js|Apache-2.0 (htm), MIT (Preact, which it contains)|components without a build step"
    "uplot|1.6.32|dist/uPlot.iife.min.js|uPlot.iife.min.js|MIT|curves"
    "uplot|1.6.32|dist/uPlot.min.css|uPlot.min.css|MIT|curves"
)
npm_package() { # NAME VERSION: unpack it into $work/NAME, and keep its licence
    mkdir -- "$work/$1"
    (cd -- "$work" && npm pack --silent "$1@$2" >/dev/null)
    tar -xzf "$work/$1-$2.tgz" -C "$work/$1" --strip-components=1
    cp -- "$work/$1/LICENSE" "$vendor/$1.LICENSE"
}
npm_package preact 10.5.13 # whose code is in the file of htm
{
    printf '# Libraries of the page\n\n'
    printf 'Released files, unchanged; written by `launch/vendor.sh`, compared by a test.\n\n'
    printf '| file | package | version | licence | for | SHA-256 |\n| --- | --- | --- | --- | --- | --- |\n'
} >"$work/README.md"
for library in "${libraries[@]}"; do
    IFS='|' read -r package version from to licence purpose <<<"$library"
    [ -d "$work/$package" ] || npm_package "$package" "$version"
    cp -- "$work/$package/$from" "$vendor/$to"
    printf '| %s | %s | %s | %s | %s | `%s` |\n' "$to" "$package" "$version" "$licence" "$purpose" \
        "$(sha256sum "$vendor/$to" | cut -d ' ' -f 1)" >>"$work/README.md"
done
cp -- "$work/README.md" "$vendor/README.md"
