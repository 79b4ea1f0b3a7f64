#!/bin/sh
# Restore a backup while no server runs: restore.sh NAME
#
# NAME is the name that backup.sh has printed. The data directory and the database must be empty.
set -eu
umask 077
if [ $# -ne 1 ] || [ ! -f "$1.tar.gz" ]; then
  echo "Usage: restore.sh NAME, for example restore.sh /var/lib/mochi-backups/mochi-20260101T120000Z" >&2
  echo "NAME is the name that backup.sh has printed, without .tar.gz." >&2
  exit 2
fi
data="${MOCHI_DATA_DIR:-/var/lib/mochi}"
mkdir -p "$data"
if [ -n "$(ls -A "$data")" ]; then
  echo "$data is not empty. Move its content to another directory first." >&2
  exit 1
fi
if [ -n "${MOCHI_STORE_URL:-}" ]; then
  pg_restore --no-owner --exit-on-error --single-transaction --dbname "$MOCHI_STORE_URL" "$1.dump"
fi
tar --extract --gzip --file "$1.tar.gz" --directory "$data"
