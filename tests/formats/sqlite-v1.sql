-- A store file of schema 1, as a shell would dump it: the registry's space and one shard's.
PRAGMA application_id = 1380992817;
PRAGMA user_version = 1;
BEGIN;
CREATE TABLE space (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO space VALUES ('shard-3', 4), ('topics', 4);
CREATE TABLE entry (space TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID;
INSERT INTO entry VALUES ('topics', CAST('r' AS BLOB), CAST('{"v":1,"version":7}' AS BLOB));
INSERT INTO entry VALUES ('shard-3', CAST('g/simple/o/clicks/3' AS BLOB),
  CAST('{"v":1,"offset":42,"leader_epoch":null,"metadata":"","commit_at_ms":1763722800123}' AS BLOB));
CREATE TABLE last_commit (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL);
INSERT INTO last_commit VALUES (1, 9);
COMMIT;
