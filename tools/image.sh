#!/usr/bin/env bash
# image.sh DOCKERFILE NAME [OPTION...]: builds an image at the root of the checkout, by docker where its daemon answers, else by
# buildah, which needs root and no daemon. Options are those of both: --build-arg NAME=VALUE, --pull, --no-cache.
set -euo pipefail

file=${1:?usage: tools/image.sh DOCKERFILE NAME [OPTION...]}
name=${2:?usage: tools/image.sh DOCKERFILE NAME [OPTION...]}
shift 2

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  exec docker build --file "$file" --tag "$name" "$@" .
elif command -v buildah >/dev/null; then
  exec buildah build --isolation chroot --ignorefile .dockerignore --file "$file" --tag "$name" "$@" .
fi
echo "image.sh: no docker daemon answers, and there is no buildah (Debian and Ubuntu: apt-get install buildah)" >&2
exit 1
