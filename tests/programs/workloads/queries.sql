-- Fills tables with fixed content and prints what several kinds of plan find there.
\set ON_ERROR_STOP on
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET work_mem = '4MB';
CREATE EXTENSION IF NOT EXISTS pgcrypto;

CREATE TABLE reading AS
SELECT i AS id, (i::bigint * 7919) % 10007 AS sensor, (i::bigint * i) % 1009 AS value,
       repeat(md5(i::text), i % 9 + 1) AS note,
       jsonb_build_object('n', i % 77, 'list', ARRAY[i % 3, i % 5, i % 7]) AS extra
FROM generate_series(1, 120000) AS i;
CREATE INDEX ON reading (sensor, value);
CREATE INDEX ON reading USING gin (extra);
CREATE INDEX ON reading USING hash (note);
ANALYZE reading;

SELECT count(*), sum(value), max(length(note)) FROM reading;
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
  SELECT sensor % 100 || ':' || count(*) || ':' || sum(value) AS line
  FROM reading GROUP BY sensor % 100) AS grouped;
SELECT count(*), sum(a.value * b.value) FROM reading a JOIN reading b
ON a.sensor = b.sensor AND a.id < b.id;
SELECT md5(string_agg(id::text, ',')) FROM (
  SELECT id FROM reading ORDER BY note DESC, value, id LIMIT 50000) AS sorted;
SELECT count(*) FROM reading WHERE extra @> '{"n": 33}';
SELECT sum(r), sum(total) FROM (
  SELECT rank() OVER (PARTITION BY sensor ORDER BY value, id) AS r,
         sum(value) OVER (ORDER BY id ROWS 100 PRECEDING) AS total
  FROM reading) AS windowed;
SELECT count(*) FROM reading WHERE note ~ '(ab|cd)[0-9]{2}.*(ef|01)$';
SELECT md5(string_agg(encode(digest(note, 'sha256'), 'hex'), '' ORDER BY id))
FROM reading WHERE id % 20 = 0;

CREATE FUNCTION collatz(start bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  n bigint := start;
  steps int := 0;
  seen text := '';
BEGIN
  WHILE n <> 1 LOOP
    n := CASE WHEN n % 2 = 0 THEN n / 2 ELSE 3 * n + 1 END;
    steps := steps + 1;
    seen := seen || n;
  END LOOP;
  IF length(seen) < steps THEN
    RAISE EXCEPTION 'too short: %', seen;
  END IF;
  RETURN steps;
END $$;
SELECT sum(collatz(i)) FROM generate_series(1, 3000) AS i;

DO $$
BEGIN
  FOR i IN 1..2000 LOOP
    BEGIN
      EXECUTE format('SELECT %s / (%s %% 2)', i, i);
    EXCEPTION WHEN division_by_zero THEN
      NULL;
    END;
  END LOOP;
END $$;

UPDATE reading SET note = reverse(note) WHERE id % 3 = 0;
DELETE FROM reading WHERE id % 7 = 0;
VACUUM (FULL, ANALYZE) reading;
SELECT count(*), md5(string_agg(note, '' ORDER BY id)) FROM reading WHERE id % 11 = 0;
