#!/bin/sh
# Back up a running server: backup.sh DIRECTORY
#
# MOCHI_DATA_DIR is the data directory. If MOCHI_STORE_URL is set, the sessions are in that PostgreSQL database.
# The script prints the name of the backup, without the suffixes of its files.
set -eu
umask 077
data="${MOCHI_DATA_DIR:-/var/lib/mochi}"
mkdir -p "$1"
name="$1/mochi-$(date -u +%Y%m%dT%H%M%SZ)"

# The server replaces each file atomically. If it replaces or deletes a file that tar reads, tar returns 1.
tar --create --gzip --file "$name.tar.gz.part" --directory "$data" \
  --exclude '.index.sqlite*' --exclude .lock --exclude .lock-owner . || [ $? -eq 1 ]
if [ -n "${MOCHI_STORE_URL:-}" ]; then
  pg_dump --format custom --no-owner --file "$name.dump" "$MOCHI_STORE_URL"
fi
mv "$name.tar.gz.part" "$name.tar.gz"
echo "$name"
