-- Sessions of later versions than 1.4. The index is usually empty. Lists use it to omit these sessions.
DROP INDEX IF EXISTS sessions_of_later_versions;
CREATE INDEX sessions_of_later_versions ON sessions (key) WHERE
    string_to_array(substring(metadata FROM '"format_version":"([0-9]{1,6}([.][0-9]{1,6})*)"'), '.')::int[] > '{1,4}';
