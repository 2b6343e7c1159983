#!/usr/bin/env bash
# Installs the system packages that the tests need and the machine lacks (Debian, Ubuntu), or says which they are.
set -euo pipefail

missing=()
need() { missing+=("$1"); }

python3 -c 'import ensurepip, venv' 2>/dev/null || [ -x .venv/bin/python ] || need python3-venv
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || need postgresql
command -v redis-server >/dev/null || need redis-server
command -v chromium >/dev/null || need chromium
command -v msgfmt >/dev/null || need gettext
# Without a Chinese font the browser tests would measure boxes.
compgen -G '/usr/share/fonts/*/*/*CJK*' >/dev/null || need fonts-noto-cjk

[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Not installed: ${missing[*]} (Debian's names). Install them, then run this again." >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  echo "Not installed: ${missing[*]}. As root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "== installing ${missing[*]}"
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
