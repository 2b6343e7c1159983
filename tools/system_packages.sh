#!/usr/bin/env bash
# system_packages.sh [postgres] [redis] [chromium] [gettext] [prometheus] [python]: installs the packages that the tests need
# and the machine lacks (Debian, Ubuntu), or prints them. Without arguments: all of them. Python is always included.
# Tests of Prometheus and Alertmanager are skipped where these two are missing.
set -euo pipefail

wanted=" ${*:-postgres redis chromium gettext prometheus} "
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

optional=()
for name in prometheus prometheus-alertmanager; do
  ! wants prometheus || command -v "$name" >/dev/null || optional+=("$name")
done

[ $((${#missing[@]} + ${#optional[@]})) -gt 0 ] || exit 0

without_optional() {
  [ ${#missing[@]} -eq 0 ] || return 0
  echo "Not installed: ${optional[*]}. Their tests are skipped."
  exit 0
}
if ! command -v apt-get >/dev/null; then
  without_optional
  echo "Not installed: ${missing[*]} (Debian package names). Install them, then run this again." >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  without_optional
  echo "Not installed: ${missing[*]}. Run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

# Packages of servers start them, now and at each boot. The tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod 755 $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi

install() {
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
echo "== installing ${missing[*]} ${optional[*]}"
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get update -qq || { without_optional; exit 1; }
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
if [ ${#optional[@]} -gt 0 ]; then
  install "${optional[@]}" || echo "Not installed: ${optional[*]}. Their tests are skipped."
  "${as_root[@]}" systemctl disable --quiet "${optional[@]}" 2>/dev/null || true
fi
