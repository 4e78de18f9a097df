-- One batch of takes and refunds, decided and written in one go.
--
-- The files of this folder, in the order of their names, are one script. The arithmetic is tidegate-core's, step by
-- step: a differential test runs the same histories through both and compares outcomes and states byte by byte.
-- Numbers stay below 2^53, so that doubles count exactly; core's bounds see to that.
--
-- KEYS[1]   the epoch
-- KEYS[2..] the counters, each once; then, if the batch names its sender, the sender's ring
-- ARGV[1]   the batch, packed (little-endian)
--   now (6 bytes; 0: ask TIME), not after (6; 0: whenever), an epoch to begin (8),
--   field of the ring (1; 255: no sender), sequence (7), how many groups (2)
--   for each group: how many takes (2), and for each take:
--     act (1), algorithm (1), index of its counter (2), n (5), requests (5), window in ms (5; 0: month), shift (5)
--     token bucket: burst (6), whether it warms up (1), its cold (5); sliding buckets: how many (1); refund: receipt (7)
-- Returns a letter, and for A what came of it, packed
--   L: it came too late, nothing was done: now (6)
--   O: the sequence is older than all that are remembered, nothing was done: now (6)
--   A: epoch (8), now (6), and for each take: taken (5), remaining (6), reset (7), retry (7), receipt (7)
--      retry: 0 at once, all ones never, else the wait and one
--
-- Every write is at the end and none depends on another: the script does all or, when memory is full, nothing.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local pack, unpack_bytes = struct.pack, struct.unpack

local ALL, SOME, FORCE, REFUND = 0, 1, 2, 3
local FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_BUCKETS, SLIDING_LOG = 1, 2, 3, 5, 6

local REQUESTS_MAX = 68719476736 -- 2^36
local BUCKET_UNITS_MAX = 4503599627370496 -- 2^52
local WARMING_MISSING_MAX = 68719476735 -- 2^36 - 1
local TIMESTAMP_MS_MAX = 4294967295000
local WINDOW_NUMBER_MAX = 4294967295
local WEIGHT_ONE = 65536
local BUCKETS_MAX = 60
local RUNS_MAX = 1000
local SMALL_STATE_BYTES = 15 -- with the kind

-- Packed as a negative number it is all ones, which Rust reads as "never" or "endless".
local ENDLESS = -1

-- The take at hand; the loop at the end sets these.
local now, n, manner, requests, window_ms, shift, burst, warms, cold_max, buckets

-- How much of `free` the take gets.
local function taken_of(free)
  if n <= free or manner == FORCE then
    return n
  end
  return manner == ALL and 0 or free
end

-- The least that must be free for it to get anything.
local function least()
  return manner == ALL and n or 1
end
