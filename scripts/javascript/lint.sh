#!/bin/sh
# eslint and prettier on all JavaScript; `lint.sh --fix` repairs what they can. Their packages are installed once, with
# the versions of package-lock.json. Where they cannot be, one line says why, and `make lint` goes on.
cd "$(dirname "$0")" || exit 1
skip() { echo "JavaScript is not linted: $1" >&2; exit 0; }

command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
    skip "node $(node --version) is older than 20.19"
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
    npm ci --silent --no-audit --no-fund >&2 || skip "npm could not install its packages; is there a network?"
    touch node_modules/.package-lock.json
fi
fix=$([ "$1" = --fix ] && echo --fix)
bin=$PWD/node_modules/.bin
cd ../..
files="src/pellucid/web/static/*.js $(ls src/pellucid/web/lab/*.js | grep -v /jax.js) lessons/live/*.js scripts/*.js scripts/javascript/*.js"
"$bin/eslint" --config scripts/javascript/eslint.config.js $fix $files &&
    "$bin/prettier" --config scripts/javascript/package.json --log-level warn ${fix:+--write} --check $files
