-- The batch.

local ENOUGH = REQUESTS_MAX * 4096 -- more than any limit ever has
-- With an injected time the server's own clock does not tell when a key has expired: it is kept for an hour more.
local TEST_SLACK_MS = 3600000
local NO_SENDER = 255
local REMEMBERED_MS = 60000
local EPOCH_MS = 2592000000 -- 30 days; the service renews it

local decide = {
  [FIXED_WINDOW] = fixed_window,
  [SLIDING_WINDOW] = sliding_window,
  [TOKEN_BUCKET] = token_bucket,
  [SLIDING_BUCKETS] = sliding_buckets,
  [SLIDING_LOG] = sliding_log,
}
local give_back = {
  [FIXED_WINDOW] = refund_fixed_window,
  [SLIDING_WINDOW] = refund_sliding_window,
  [TOKEN_BUCKET] = refund_token_bucket,
  [SLIDING_BUCKETS] = refund_sliding_buckets,
  [SLIDING_LOG] = refund_sliding_log,
}

local input = ARGV[1]
local not_after, new_epoch, field, sequence, groups, position
now, not_after, new_epoch, field, sequence, groups, position = unpack_bytes('<I6I6c8BI7I2', input)
local slack = 0
if now > 0 then
  slack = TEST_SLACK_MS
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
now = min(now, TIMESTAMP_MS_MAX)
if not_after > 0 and now > not_after then
  return pack('<c1I6', 'L', now)
end

local ring = field ~= NO_SENDER and KEYS[#KEYS]
if ring then
  local remembered = redis.call('HGET', ring, field)
  if remembered then
    local its_sequence, applied_at = unpack_bytes('<I7I6', remembered)
    if now - applied_at < REMEMBERED_MS then
      if its_sequence == sequence then
        return 'A' .. (redis.call('GET', KEYS[1]) or new_epoch) .. remembered:sub(8)
      elseif its_sequence > sequence then
        return pack('<c1I6', 'O', now)
      end
    end
  end
end

local states = redis.call('MGET', unpack(KEYS))
local epoch = states[1]
local begins_epoch = not epoch or #epoch ~= 8
if begins_epoch then
  epoch = new_epoch
end

local answers = { pack('<I6', now) }
local answered = 1
local expiries = {} -- of counters that are to be written
local written, write_count = {}, 0

-- The take at `position`, made the one at hand; returns its act, algorithm, counter and receipt.
local function next_take()
  local act, algorithm, counter, receipt
  act, algorithm, counter, n, requests, window_ms, shift, position = unpack_bytes('<BBI2I5I5I5I5', input, position)
  if algorithm == TOKEN_BUCKET then
    burst, warms, cold_max, position = unpack_bytes('<I6BI5', input, position)
    warms = warms == 1
  elseif algorithm == SLIDING_BUCKETS then
    buckets, position = unpack_bytes('B', input, position)
  end
  if act == REFUND then
    receipt, position = unpack_bytes('<I7', input, position)
  end
  manner = act
  return act, algorithm, counter, receipt
end

local function keep(counter, state, expires)
  if not expiries[counter] then
    write_count = write_count + 1
    written[write_count] = counter
  end
  states[counter] = state
  expiries[counter] = expires
end

-- What is left of the limit at hand, and when all of it is free again.
local function look(algorithm, state)
  n, manner = ENOUGH, ALL
  local _, remaining, reset = decide[algorithm](state)
  return remaining, reset
end

-- A group that failed: all takes tell the counters as they stand.
local function answer_failed(first, takes, retries)
  position = first
  for i = 1, takes do
    local _, algorithm, counter = next_take()
    local remaining, reset = look(algorithm, states[counter])
    answered = answered + 1
    answers[answered] = pack('<I5I6I7I7I7', 0, remaining, reset, retries[i], 0)
  end
end

for _ = 1, groups do
  local takes
  takes, position = unpack_bytes('<I2', input, position)
  local first, first_answer = position, answered
  local before, retries = takes > 1 and {}, {}
  local failed = false
  for i = 1, takes do
    local act, algorithm, counter, receipt = next_take()
    local taken, remaining, reset, retry, new_receipt, state, expires
    local old = states[counter]
    if act == REFUND then
      state, expires = give_back[algorithm](old, receipt)
      remaining, reset = look(algorithm, state or old)
      taken, retry, new_receipt = 0, 0, 0
    else
      taken, remaining, reset, retry, new_receipt, state, expires = decide[algorithm](old)
      if taken == 0 then
        new_receipt = 0
        retry = retry == ENDLESS and ENDLESS or retry + 1
        failed = failed or act == ALL
      end
    end
    retries[i] = act == ALL and retry or 0
    if state and state ~= old then
      if before and not before[counter] then
        before[counter] = { old, expiries[counter] }
      end
      keep(counter, state, expires)
    end
    answered = answered + 1
    answers[answered] = pack('<I5I6I7I7I7', taken, remaining, reset, retry, new_receipt)
  end
  if failed and takes > 1 then
    for counter, was in pairs(before) do
      states[counter], expiries[counter] = was[1], was[2] or 0
    end
    answered = first_answer
    answer_failed(first, takes, retries)
  end
end

local answer = table.concat(answers, '', 1, answered)
for i = 1, write_count do
  local counter = written[i]
  -- One that a failed group touched and nobody else has no expiry: it stays as it is.
  if expiries[counter] > 0 then
    redis.call('SET', KEYS[counter], states[counter], 'PX', max(expiries[counter] - now, 1) + slack)
  end
end
if ring then
  redis.call('HSET', ring, field, pack('<I7', sequence) .. answer)
  redis.call('PEXPIRE', ring, REMEMBERED_MS + slack)
end
if begins_epoch then
  redis.call('SET', KEYS[1], epoch, 'PX', EPOCH_MS)
end
return 'A' .. epoch .. answer
