-- Builds, changes and queries a database of fixed content.
PRAGMA journal_mode = WAL;
PRAGMA cache_size = -32000;
CREATE TABLE item (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, body BLOB, price REAL, shelf INTEGER);
CREATE TABLE movement (item INTEGER REFERENCES item (id), step INTEGER, amount INTEGER);
CREATE TABLE ledger (item INTEGER PRIMARY KEY, total INTEGER) WITHOUT ROWID;
CREATE TRIGGER entered AFTER INSERT ON movement BEGIN
  INSERT INTO ledger VALUES (new.item, new.amount)
  ON CONFLICT (item) DO UPDATE SET total = total + excluded.total;
END;

BEGIN;
WITH RECURSIVE number (i, state) AS (
  VALUES (1, 12345)
  UNION ALL
  SELECT i + 1, (state * 1103515245 + 12345) & 0x7fffffff FROM number WHERE i < 40000)
INSERT INTO item
SELECT i, printf('item-%x-%d', state, i),
       zeroblob(state % 700) || hex(state), state % 10007 / 7.0, state % 97
FROM number;
INSERT INTO movement
SELECT 1 + id * 7919 % 40000, id % 50, id % 13 - 6 FROM item;
COMMIT;

CREATE INDEX by_name ON item (name COLLATE NOCASE);
CREATE INDEX by_shelf ON item (shelf, price DESC);
UPDATE item SET body = body || printf('%.*c', id % 3000, 'x') WHERE id % 5 = 0;
DELETE FROM item WHERE id % 11 = 3;
INSERT INTO item (name, price, shelf)
SELECT upper(name) || name, price * 2, shelf FROM item WHERE shelf IN (3, 5, 8);

SELECT shelf, count(*), round(sum(price), 3), max(length(body)), min(name)
FROM item GROUP BY shelf ORDER BY shelf;
SELECT count(*), sum(rank), sum(running) FROM (
  SELECT rank() OVER (PARTITION BY shelf ORDER BY price, id) AS rank,
         sum(id) OVER (ORDER BY shelf, id ROWS 20 PRECEDING) AS running FROM item);
SELECT length(group_concat(name, ',')) FROM (SELECT name FROM item ORDER BY name);
SELECT count(*) FROM item a JOIN item b ON a.shelf = b.shelf AND a.id < b.id
WHERE a.id % 40 = 0;
SELECT length(json_group_object(name, json_array(id, price, shelf))),
       count(DISTINCT substr(name, 6, 3)) FROM item;
SELECT count(*), sum(total) FROM ledger;

CREATE VIRTUAL TABLE words USING fts5 (name, shelf);
INSERT INTO words SELECT replace(name, '-', ' '), 'shelf' || shelf FROM item;
SELECT count(*) FROM words WHERE words MATCH 'item AND shelf42';
INSERT INTO words (words) VALUES ('optimize');

ANALYZE;
VACUUM;
PRAGMA integrity_check;
PRAGMA foreign_key_check;
