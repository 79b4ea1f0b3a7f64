#!/bin/sh
# Restore a backup while no server runs: restore.sh NAME
#
# NAME is the name that backup.sh has printed. The data directory and the database must be empty.
# MOCHI_DATA_DIR and MOCHI_STORE_URL are as for backup.sh.
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
settings="${SETTINGS_FILE:-/etc/mochi-server.env}"
url=""
if [ -r "$settings" ]; then
  url=$(sed -n 's/^MOCHI_STORE_URL=//p' "$settings" | tr -d "\"'")
fi
url="${MOCHI_STORE_URL-$url}"
# Every user can see the arguments of a command with `ps`, so the password goes into the environment.
password=$(printf '%s\n' "$url" | sed -n 's|^[^:]*://[^:/@]*:\([^/@]*\)@.*|\1|p')
url=$(printf '%s\n' "$url" | sed 's|^\([^:]*://[^:/@]*\):[^/@]*@|\1@|')
if [ -n "$password" ]; then
  PGPASSWORD=$(printf '%s' "$password" | python3 -c 'import sys, urllib.parse as u; print(u.unquote(sys.stdin.read()))')
  export PGPASSWORD
fi
if [ -n "$url" ]; then
  pg_restore --no-owner --exit-on-error --single-transaction --dbname "$url" "$1.dump"
fi
tar --extract --gzip --file "$1.tar.gz" --directory "$data"
