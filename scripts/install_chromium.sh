#!/bin/sh
# The tests of the page drive a real browser. Where chromium is missing and Debian's can be installed, install it;
# everywhere else those tests skip and say why.
command -v chromium >/dev/null || command -v chromium-browser >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq chromium >/dev/null
fi || echo "chromium could not be installed: the tests of the page will be skipped" >&2
exit 0
