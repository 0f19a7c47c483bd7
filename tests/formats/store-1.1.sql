-- A store of format 1.1, made with 4 shards: a record of each kind, and each field that 1.1 added.
PRAGMA application_id = 1380992817;
PRAGMA user_version = 1;
BEGIN;
CREATE TABLE space (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO space VALUES ('format', 3), ('shard-1', 3), ('shard-2', 3), ('shard-3', 3), ('topics', 3);
CREATE TABLE entry (space TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID;
INSERT INTO entry VALUES ('format', CAST('f' AS BLOB),
  CAST('{"v":1,"major":1,"minor":1,"release":"0.1.0"}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/d' AS BLOB),
  CAST('{"v":1,"version":8}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/h' AS BLOB),
  CAST('{"v":1,"protocol_type":"consumer","protocol_name":"cooperative-sticky","generation_id":4,"highest_generation_id":5,"leader":"etl-1-5f0c","state_at_ms":1763722800000,"partition_counts":{"clicks":12}}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/m/etl-1-5f0c/4' AS BLOB),
  CAST('{"v":1,"seniority":0,"group_instance_id":null,"client_id":"etl-1","host":"198.51.100.7","session_timeout_ms":45000,"rebalance_timeout_ms":300000,"disconnect_grace_ms":null,"metadata":"{\"topics\":[\"clicks\"]}","assignment":"{\"partitions\":{\"clicks\":[0,1,2]}}","request_id":"req-1"}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/m/seat%252-9a1b/3' AS BLOB),
  CAST('{"v":1,"seniority":1,"group_instance_id":"seat%2","client_id":"seat","host":"198.51.100.8","session_timeout_ms":45000,"rebalance_timeout_ms":300000,"disconnect_grace_ms":2000,"metadata":"{\"topics\":[\"clicks\"]}","assignment":"null","request_id":null}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/m/seat%252-9a1b/5' AS BLOB),
  CAST('{"v":1,"gone":true}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/o/clicks/3' AS BLOB),
  CAST('{"v":1,"offset":42,"leader_epoch":7,"metadata":"até aqui","commit_at_ms":1763722800123}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/r/7' AS BLOB),
  CAST('{"v":1,"previous_generation_id":3,"began_at_ms":1763722800000,"cause":{"trigger":"member_left","reason":"left: etl-2-77aa: até já","member_id":"etl-2-77aa","client_id":"etl-2","host":"198.51.100.9","at_ms":1763722790000},"generation_id":4,"join_phase_ms":1200,"sync_phase_ms":35,"member_count":2,"partitions_moved":6,"outcome":"completed","further":[{"trigger":"topic_changed","reason":"subscribed topics changed: clicks has 12 partitions","member_id":null,"client_id":null,"host":null,"at_ms":1763722791000}],"further_count":12}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('g/clicks%2Feu 😀/s' AS BLOB),
  CAST('{"v":1,"frozen_until_ms":1763723700000,"freeze_reason":"deploy 4711","cooldown_ms":20000}' AS BLOB));
INSERT INTO entry VALUES ('shard-1', CAST('p' AS BLOB),
  CAST('{"v":1,"ran_until_ms":1764000000000,"pauses":[[1763722800000,1763722800000],[1763809200000,2079000000000],[2079000600000,17640]]}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('g/simple/h' AS BLOB),
  CAST('{"v":1,"protocol_type":null,"protocol_name":null,"generation_id":0,"highest_generation_id":0,"leader":null,"state_at_ms":1763722800000,"partition_counts":{}}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('g/simple/o/a%2Fb/0' AS BLOB),
  CAST('{"v":1,"offset":-1,"leader_epoch":null,"metadata":"","commit_at_ms":1763722800123}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('g/simple/r/100' AS BLOB),
  CAST('{"v":1,"previous_generation_id":0,"began_at_ms":1763722800000,"cause":{"trigger":"operator","reason":"an operator asked for it: not provided","member_id":null,"client_id":null,"host":"198.51.100.9","at_ms":1763722800000},"generation_id":null,"join_phase_ms":null,"sync_phase_ms":null,"member_count":null,"partitions_moved":null,"outcome":"in_progress","further":[],"further_count":0}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('g/simple/s' AS BLOB),
  CAST('{"v":1,"frozen_until_ms":null,"freeze_reason":null,"cooldown_ms":0}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('p' AS BLOB),
  CAST('{"v":1,"ran_until_ms":1764000000000,"pauses":[[1763722800000,1763722800000],[1763809200000,2079000000000],[2079000600000,17640]]}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('l' AS BLOB),
  CAST('{"v":1,"shards":4}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('r' AS BLOB),
  CAST('{"v":1,"version":9}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('t/a%2Fb' AS BLOB),
  CAST('{"v":1,"partitions":3,"version":9,"end_offsets":{"2":17},"replica_racks":[["eu-west-1a","zone b","зона"],[],["zone b"]]}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('t/clicks' AS BLOB),
  CAST('{"v":1,"partitions":12,"version":7,"end_offsets":{"0":120,"11":0}}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('x/a%2Fb' AS BLOB),
  CAST('{"v":1,"version":8}' AS BLOB));
INSERT INTO entry VALUES ('shard-3', CAST('g/kicked/h' AS BLOB),
  CAST('{"v":1,"protocol_type":"consumer","protocol_name":"range","generation_id":3,"highest_generation_id":3,"leader":"etl-3-11bc","state_at_ms":1763722800000,"partition_counts":{"clicks":12}}' AS BLOB));
INSERT INTO entry VALUES ('shard-3', CAST('g/kicked/m/etl-3-11bc/3' AS BLOB),
  CAST('{"v":1,"seniority":0,"group_instance_id":null,"client_id":"etl-3","host":"198.51.100.7","session_timeout_ms":45000,"rebalance_timeout_ms":300000,"disconnect_grace_ms":null,"metadata":"{\"topics\":[\"clicks\"]}","assignment":"{\"partitions\":{\"clicks\":[0]}}","request_id":null,"removed":true}' AS BLOB));
INSERT INTO entry VALUES ('shard-3', CAST('g/kicked/m/etl-4-22cd/3' AS BLOB),
  CAST('{"v":1,"seniority":1,"group_instance_id":null,"client_id":"etl-4","host":"198.51.100.8","session_timeout_ms":45000,"rebalance_timeout_ms":300000,"disconnect_grace_ms":null,"metadata":"{\"topics\":[\"clicks\"]}","assignment":"{\"partitions\":{\"clicks\":[1]}}","request_id":null}' AS BLOB));
INSERT INTO entry VALUES ('shard-3', CAST('g/kicked/s' AS BLOB),
  CAST('{"v":1,"frozen_until_ms":1763723700000,"freeze_reason":"roll","cooldown_ms":null,"freeze_until":"members_replaced","freeze_roster":{"etl-3-11bc":"etl-3","seat%2-9a1b":"seat%2"},"join_wait_max_ms":5000}' AS BLOB));
INSERT INTO entry VALUES ('topics', CAST('e/clicks' AS BLOB),
  CAST('{"v":1,"reported_at_ms":[1763722800000,1763722860000],"ends":[{"0":100},{"0":120,"11":0}]}' AS BLOB));
INSERT INTO entry VALUES ('shard-2', CAST('g/waits/s' AS BLOB),
  CAST('{"v":1,"frozen_until_ms":null,"freeze_reason":null,"cooldown_ms":null,"join_wait_max_ms":3000}' AS BLOB));
CREATE TABLE last_commit (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL);
INSERT INTO last_commit VALUES (1, 9);
COMMIT;
