#!/usr/bin/env bash
# system_packages.sh [postgres] [redis] [chromium] [gettext] [python]: installs the packages that the tests need and the machine
# lacks (Debian, Ubuntu), or prints them. Without arguments: all of them. Python is always included.
set -euo pipefail

wanted=" ${*:-postgres redis chromium gettext} "
wants() { [[ $wanted == *" $1 "* ]]; }

missing=()
need() { missing+=("$1"); }

creates_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
if [ ! -x .venv/bin/python ]; then
  # Root can make the distribution's Python fit; it is preferred (tools/make_venv.sh). For others any Python will do.
  wanted_python=python3
  [ "$(id -u)" -ne 0 ] || [ ! -x /usr/bin/python3 ] || wanted_python=/usr/bin/python3
  creates_venv "$wanted_python" || need python3-venv
fi
! wants postgres || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || need postgresql
! wants redis || command -v redis-server >/dev/null || need redis-server
! wants chromium || command -v chromium >/dev/null || need chromium
! wants gettext || command -v msgfmt >/dev/null || need gettext
# Without a Chinese font, the browser tests would measure empty boxes.
! wants chromium || compgen -G '/usr/share/fonts/*/*/*CJK*' >/dev/null || need fonts-noto-cjk

[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Not installed: ${missing[*]} (Debian package names). Install them, then run this again." >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  echo "Not installed: ${missing[*]}. Run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "== installing ${missing[*]}"
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
