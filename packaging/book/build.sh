#!/bin/sh
# Builds the guide as a book into FOLDER (default target/book), and checks it: `build.sh [FOLDER]`. A warning of mdBook is an
# error here, as is a page that SUMMARY.md lacks, or a link of the book that leads nowhere.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "${1:-target/book}"
folder=$(cd "${1:-target/book}" && pwd)
mdbook=${CLIENTS:-target/clients}/mdbook/bin/mdbook

# It empties the folder first.
said=$("$mdbook" build packaging/book --dest-dir "$folder" 2>&1) || {
    printf '%s\n' "$said"
    exit 1
}
printf '%s\n' "$said"
case $said in
*WARN* | *ERROR*)
    echo "book: mdBook warns" >&2
    exit 1
    ;;
esac
python3 packaging/book/check.py packaging/guide "$folder"
