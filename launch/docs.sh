#!/usr/bin/env bash
# Build the documentation site: launch/docs.sh [--serve]
#
#   launch/docs.sh            builds it into .site/; a broken link or reference is a failure
#   launch/docs.sh --serve    serves it on http://127.0.0.1:8001, and builds it again after each change
#
# Sets up .venv beside this checkout like launch/test.sh. The pages are in docs/, their order in mkdocs.yml.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage "$0"
    exit 0
fi

set_up dev all,dev
cd -- "$root"
# A notice about a later release of MkDocs, which is not the one that is pinned here.
export NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = --serve ]; then
    exec "$python" -m mkdocs serve --strict --dev-addr 127.0.0.1:8001
fi
"$python" -m mkdocs build --strict --quiet
say "the site is $root/.site/index.html"
