#!/usr/bin/env bash
# build.sh FOLDER: builds the portal's image where there is no Docker and no registry. Run it as root at the root of the
# checkout, on Debian or Ubuntu with mmdebstrap, umoci and buildah. It writes to FOLDER:
#   oci/          the image as an OCI layout (`skopeo copy oci:FOLDER/oci docker://…` publishes it under this digest)
#   digest        its digest, for image.digest of the chart
#   packages.txt  the Debian packages in it, with their versions
# The base has Debian packages only; the rest are the steps of deploy/portal/Dockerfile. The same commit, SNAPSHOT and
# architecture give the same digest. Variables:
#   SNAPSHOT           a mirror of Debian bookworm that does not change, such as
#                      http://snapshot.debian.org/archive/debian/20261101T000000Z (default: the current one)
#   SOURCE_DATE_EPOCH  the time of all files (default: that of the commit)
#   LOCK               requirements-extras.lock for OpenTelemetry and Sentry
#   PIP_INDEX_URL      another index than PyPI
set -euo pipefail

folder=$(realpath -m "${1:?usage: deploy/portal/build.sh FOLDER}")
SNAPSHOT=${SNAPSHOT:-http://deb.debian.org/debian}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
LOCK=${LOCK:-requirements.lock}
export SOURCE_DATE_EPOCH
[ -f deploy/portal/Dockerfile ] || { echo "build.sh: run it at the root of the checkout" >&2; exit 2; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kcover-image.XXXXXX")
store=(buildah --root "$scratch/store" --runroot "$scratch/run" --storage-driver vfs)
clean() {
  "${store[@]}" rm --all >/dev/null 2>&1 || true
  rm -rf "$scratch"
}
trap clean EXIT

# What the Dockerfile's own base has: Python as `python`, and pip that may install for the whole system. Without byte code:
# the Dockerfile compiles it, in a form that does not depend on times.
echo "== the base from $SNAPSHOT"
mmdebstrap --quiet --variant=minbase --include=python3,python-is-python3,python3-pip,ca-certificates \
  --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
  --customize-hook='find "$1"/usr -name __pycache__ -prune -exec rm -rf {} +' \
  --customize-hook='rm -rf "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/locale' \
  --customize-hook="chroot \"\$1\" dpkg-query --show --showformat='\${Package} \${Version} \${Architecture}\n' >'$scratch/packages.txt'" \
  bookworm "$scratch/base.tar" "$SNAPSHOT"
umoci init --layout "$scratch/base"
umoci new --image "$scratch/base:base"
created=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
umoci raw add-layer --image "$scratch/base:base" --history.created "$created" "$scratch/base.tar"
umoci config --image "$scratch/base:base" --created "$created" --history.created "$created" \
  --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --config.env LANG=C.UTF-8

base=$(cd "$scratch" && "${store[@]}" pull --quiet oci:base:base) # a whole path would become its name, in lower case

echo "== the steps of deploy/portal/Dockerfile"
# The certificates of this machine: an index behind a proxy of its own is trusted here, too.
"${store[@]}" build --isolation chroot --from "$base" --file deploy/portal/Dockerfile \
  --ignorefile .dockerignore --timestamp "$SOURCE_DATE_EPOCH" --volume /etc/ssl/certs:/etc/ssl/certs:ro \
  --build-arg SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" --build-arg LOCK="$LOCK" \
  --build-arg PIP_INDEX_URL="${PIP_INDEX_URL:-https://pypi.org/simple}" --tag kcover-portal .

mkdir -p "$folder"
rm -rf "$folder/oci"
"${store[@]}" push --quiet --digestfile "$folder/digest" kcover-portal "oci:$folder/oci:kcover-portal"
mv "$scratch/packages.txt" "$folder/packages.txt"
echo "== $folder/oci"
cat "$folder/digest"
