-- One batch of takes and refunds, decided and written in one go.
--
-- The files of this folder, in the order of their names, are one script. The arithmetic is tidegate-core's, step by
-- step: a differential test runs the same histories through both and compares outcomes and states byte by byte.
-- Numbers stay below 2^53, so that doubles count exactly; core's bounds see to that.
--
-- It is made to be quick. The server runs all of it for each batch, so a function that the batch does not need is not
-- made; words in capitals become numbers before the server sees them; and a division rounds by a remainder, for a call
-- of math.floor costs more: (a - a % b) / b rounds down, (a + -a % b) / b rounds up.
--
-- KEYS[1]   the epoch
-- KEYS[2..] the counters, each once; then, if the batch names its sender, the sender's ring
-- ARGV[1]   the batch, packed (little-endian)
--   now (6 bytes; 0: ask TIME), not after (6; 0: whenever), an epoch to begin (8),
--   field of the ring (1; 255: no sender), sequence (7), the batch's fingerprint (8), whether states are to be told (1),
--   which algorithms it uses (1 each): fixed window, month, sliding window, token bucket, sliding buckets, sliding log
--   for each take:
--     how many takes of its group come after it (2), act (1), algorithm (1), index of its counter (2),
--     n (5), requests (5), window in ms (5; 0: month), shift (5)
--     token bucket: burst (6), whether it warms up (1), its cold (5); sliding buckets: how many (1); refund: receipt (7)
-- Returns a letter, and what came of it, packed
--   L: it came too late, nothing was done: now (6)
--   O: the sequence is older than all that are remembered, or was another batch's, nothing was done: now (6)
--   A: epoch (8), now (6), and a MessagePack array with five numbers for each take: taken, remaining, reset, retry,
--      receipt. Retry is 0 for at once, -1 for never, else the wait and one; a time of -1 is endless.
--      If states are to be told, an array with each take's counter after its group, as it is kept ('': nothing is, or
--      there are too many bytes of them).
--
-- Every write is at the end and none depends on another: the script does all or, when memory is full, nothing.
--
-- A function that decides gives taken, remaining, reset, retry, receipt and, if something was taken, the new state and
-- when it is as good as none. One that refunds gives the new state and that time, or nothing if there was no state.

local pack, unpack_bytes = struct.pack, struct.unpack

local input = ARGV[1]
local now, not_after, new_epoch, field, sequence, fingerprint, tells_states,
  has_fixed_window, has_month, has_sliding_window, has_token_bucket, has_sliding_buckets, has_sliding_log,
  position = unpack_bytes('<I6I6c8BI7c8BBBBBBB', input)
