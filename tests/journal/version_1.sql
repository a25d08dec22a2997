-- A journal of version 1, as the release that introduced it would have written it.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE problem (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE device (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE origin (
  id INTEGER PRIMARY KEY,
  program TEXT NOT NULL,
  toolchain TEXT NOT NULL,
  UNIQUE (program, toolchain));
CREATE TABLE candidate (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  runner TEXT NOT NULL,
  version INTEGER NOT NULL,
  scheme TEXT NOT NULL,
  stages TEXT NOT NULL,
  layout TEXT NOT NULL);
CREATE INDEX candidate_by_hash ON candidate (hash);
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problem,
  device INTEGER NOT NULL REFERENCES device,
  candidate INTEGER NOT NULL REFERENCES candidate,
  origin INTEGER NOT NULL REFERENCES origin,
  tokens INTEGER NOT NULL,
  workload TEXT NOT NULL,
  seed INTEGER NOT NULL,
  scale TEXT NOT NULL,
  stage INTEGER NOT NULL,
  phase TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  median_us REAL NOT NULL,
  min_us REAL NOT NULL,
  q1_us REAL NOT NULL,
  q3_us REAL NOT NULL,
  clock_mhz INTEGER NOT NULL,
  throttle_reasons INTEGER NOT NULL,
  temperature_c INTEGER NOT NULL,
  power_w REAL NOT NULL,
  rejected TEXT,
  rejected_as TEXT,
  against TEXT,
  against_version INTEGER,
  against_samples INTEGER,
  against_median_us REAL,
  against_min_us REAL,
  against_q1_us REAL,
  against_q3_us REAL,
  speedup REAL,
  speedup_low REAL,
  speedup_high REAL,
  rounds INTEGER,
  outcome TEXT);
CREATE INDEX measurement_by_place ON measurement (problem, device, candidate);
CREATE TABLE plan (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problem,
  device INTEGER NOT NULL REFERENCES device,
  origin INTEGER NOT NULL REFERENCES origin,
  unix_ms INTEGER NOT NULL,
  properties TEXT NOT NULL,
  plan TEXT NOT NULL);
CREATE INDEX plan_by_place ON plan (problem, device);
PRAGMA application_id = 1836017012;
PRAGMA user_version = 1;
INSERT INTO problem (key) VALUES ('fused_moe hidden=64');
INSERT INTO device (key) VALUES ('cpu isa=avx2');
INSERT INTO origin (program, toolchain) VALUES ('moetune 0.1.0', '{"compiler":"gcc 12.2.0"}');
INSERT INTO candidate (hash, runner, version, scheme, stages, layout) VALUES
  (1, 'cpu.packed', 2, 'single', '[{"name":"main","tactic":{"tile":16,"order":"rows"}}]', 'plain');
INSERT INTO measurement (problem, device, candidate, origin, tokens, workload, seed, scale, stage, phase, unix_ms, samples, median_us, min_us, q1_us, q3_us, clock_mhz, throttle_reasons, temperature_c, power_w) VALUES
  (1, 1, 1, 1, 8, 'uniform', 0, 'full', -1, 'race', 1700000000000, 3, 12.5, 12, 12.25, 13, 3400, 0, 60, 35.5);
INSERT INTO measurement (problem, device, candidate, origin, tokens, workload, seed, scale, stage, phase, unix_ms, samples, median_us, min_us, q1_us, q3_us, clock_mhz, throttle_reasons, temperature_c, power_w,
  against, against_version, against_samples, against_median_us, against_min_us, against_q1_us, against_q3_us,
  speedup, speedup_low, speedup_high, rounds, outcome) VALUES
  (1, 1, 1, 1, 8, 'uniform', 0, 'full', -1, 'confirm', 1700000001000, 40, 12.5, 12, 12.25, 13, 3400, 0, 60, 35.5,
   'cpu.packed/single main{tile=8,order=rows}', 2, 40, 15, 14, 14.5, 15.5, 1.2, 1.15, 1.25, 10, 'better');
COMMIT;
