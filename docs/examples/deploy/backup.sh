#!/bin/sh
# Back up a running server: backup.sh DIRECTORY
#
# MOCHI_DATA_DIR is the data directory. If MOCHI_STORE_URL is set, the sessions are in that PostgreSQL database.
# If this variable does not exist, the script reads it from the file with the settings of the service.
# The script prints the name of the backup, without the suffixes of its files. A backup that fails leaves no file.
set -eu
umask 077
if [ $# -ne 1 ]; then
  echo "Usage: backup.sh DIRECTORY" >&2
  exit 2
fi
data="${MOCHI_DATA_DIR:-/var/lib/mochi}"
if [ ! -d "$data" ]; then
  echo "There is no directory $data. Set MOCHI_DATA_DIR to the data directory of the server." >&2
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
mkdir -p "$1"
name="$1/mochi-$(date -u +%Y%m%dT%H%M%SZ)"
trap 'rm -f "$name.tar.gz.part" "$name.dump.part"' EXIT
trap 'exit 1' HUP INT TERM

if [ -n "$url" ]; then
  client=$(pg_dump --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
  server=$(psql --no-psqlrc --tuples-only --no-align --command 'SHOW server_version_num' "$url")
  server=$((server / 10000))
  if [ "$client" -lt "$server" ]; then
    echo "pg_dump $client cannot back up PostgreSQL $server. Install the package postgresql-client-$server." >&2
    exit 1
  fi
fi

# The server replaces each file atomically. If it replaces or deletes a file that tar reads, tar returns 1.
tar --create --gzip --file "$name.tar.gz.part" --directory "$data" \
  --exclude '.index.sqlite*' --exclude .lock --exclude .lock-owner . || [ $? -eq 1 ]
if [ -n "$url" ]; then
  pg_dump --format custom --no-owner --file "$name.dump.part" "$url"
  mv "$name.dump.part" "$name.dump"
fi
mv "$name.tar.gz.part" "$name.tar.gz"
echo "$name"
