-- The batch.

-- With an injected time the server's own clock does not tell when a key has expired: it is kept for an hour more.
local slack = 3600000
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
  slack = 0
end
if now > TIMESTAMP_MS_MAX then
  now = TIMESTAMP_MS_MAX
end
if not_after > 0 and now > not_after then
  return pack('<c1I6', 'L', now)
end

-- If the batch asks for them: states of all groups so far, and the counters of the group at hand.
local told, counters, tell
if tells_states == 1 then
  told, counters = {}, {}
  local room = STATES_BYTES_MAX
  tell = function(state)
    room = room - #state
    told[#told + 1] = room >= 0 and state or ''
  end
end

local ring = field ~= NO_SENDER and KEYS[#KEYS]
if ring then
  local remembered = redis.call('HGET', ring, field)
  if remembered then
    local its_sequence, its_fingerprint, applied_at = unpack_bytes('<I7c8I6', remembered)
    if now - applied_at < REMEMBERED_MS then
      if its_sequence == sequence then
        if its_fingerprint ~= fingerprint then
          return pack('<c1I6', 'O', now)
        end
        local answer = 'A' .. (redis.call('GET', KEYS[1]) or new_epoch) .. remembered:sub(16)
        if not told then
          return answer
        end
        -- States are not remembered, for they may be long: they are told as they are now.
        local states = redis.call('MGET', unpack(KEYS, 1, #KEYS - 1))
        while position <= #input do
          local its_act, algorithm, counter = unpack_bytes('<BBI2', input, position + 2)
          tell(states[counter] or '')
          position = position + 26 + (algorithm == TOKEN_BUCKET and 12 or algorithm == SLIDING_BUCKETS and 1 or 0)
            + (its_act == REFUND and 7 or 0)
        end
        return answer .. cmsgpack.pack(told)
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

-- Five numbers for each take, packed together at the end: one call instead of one for each.
local answers, answered = {}, 0
-- Counters to be written, and when what is written is as good as none; 0 for one that only a failed group touched.
local written, write_count, expiries = {}, 0, {}

-- The group at hand: where it begins, and whether it failed. When a group of several has failed, its changes are
-- undone and it is gone through again, only looking: each take tells its counter as it stands.
local first, first_answer, failed, looking = position, answered, false, false
local index, retries, before = 0, nil, nil
local length = #input

while position <= length do
  local left, act, algorithm, counter, n, requests, window_ms, shift
  left, act, algorithm, counter, n, requests, window_ms, shift, position =
    unpack_bytes('<I2BBI2I5I5I5I5', input, position)
  local burst, warms, cold_max, buckets, receipt
  if algorithm == TOKEN_BUCKET then
    burst, warms, cold_max, position = unpack_bytes('<I6BI5', input, position)
    warms = warms == 1
  elseif algorithm == SLIDING_BUCKETS then
    buckets, position = unpack_bytes('B', input, position)
  end
  if act == REFUND then
    receipt, position = unpack_bytes('<I7', input, position)
  end
  if left > 0 and not before then
    retries, before = {}, {}
  end
  index = index + 1
  if told then
    counters[index] = counter
  end

  local old, manner = states[counter], act
  local state, expires
  if act == REFUND and not looking then
    if algorithm == SLIDING_WINDOW then
      state, expires = refund_sliding_window(old, n, receipt, window_ms, shift)
    elseif algorithm == FIXED_WINDOW then
      state, expires = refund_fixed_window(old, n, receipt, window_ms, shift)
    elseif algorithm == TOKEN_BUCKET then
      state, expires = refund_token_bucket(old, n, receipt, requests, window_ms, warms, cold_max)
    elseif algorithm == SLIDING_BUCKETS then
      state, expires = refund_sliding_buckets(old, n, receipt, window_ms, shift, buckets)
    else
      state, expires = refund_sliding_log(old, n, receipt, window_ms)
    end
  end
  -- One that only looks asks for more than any limit ever has.
  if act == REFUND or looking then
    n, manner = ENOUGH, ALL
  end

  local taken, remaining, reset, retry, new_state, new_expires
  if algorithm == SLIDING_WINDOW then
    taken, remaining, reset, retry, receipt, new_state, new_expires =
      sliding_window(state or old, n, manner, requests, window_ms, shift)
  elseif algorithm == FIXED_WINDOW then
    taken, remaining, reset, retry, receipt, new_state, new_expires =
      fixed_window(state or old, n, manner, requests, window_ms, shift)
  elseif algorithm == TOKEN_BUCKET then
    taken, remaining, reset, retry, receipt, new_state, new_expires =
      token_bucket(state or old, n, manner, requests, window_ms, burst, warms, cold_max)
  elseif algorithm == SLIDING_BUCKETS then
    taken, remaining, reset, retry, receipt, new_state, new_expires =
      sliding_buckets(state or old, n, manner, requests, window_ms, shift, buckets)
  else
    taken, remaining, reset, retry, receipt, new_state, new_expires =
      sliding_log(state or old, n, manner, requests, window_ms)
  end
  if taken > 0 then
    state, expires = new_state, new_expires
  else
    receipt = 0
    if looking then
      retry = retries[index]
    elseif act == REFUND then
      retry = 0
    else
      retry = retry == ENDLESS and ENDLESS or retry + 1
      failed = failed or act == ALL
    end
  end
  if before then
    retries[index] = act == ALL and retry or 0
  end

  if state and state ~= old then
    if before and not before[counter] then
      before[counter] = { old, expiries[counter] or 0 }
    end
    if not expiries[counter] then
      write_count = write_count + 1
      written[write_count] = counter
    end
    states[counter], expiries[counter] = state, expires
  end
  answers[answered + 1], answers[answered + 2], answers[answered + 3], answers[answered + 4], answers[answered + 5] =
    taken, remaining, reset, retry, receipt
  answered = answered + 5

  if left == 0 then
    if failed and before and not looking then
      for touched, was in pairs(before) do
        states[touched], expiries[touched] = was[1], was[2]
      end
      position, answered, looking = first, first_answer, true
    else
      if told then
        for i = 1, index do
          tell(states[counters[i]] or '')
        end
      end
      first, first_answer, failed, looking = position, answered, false, false
      retries, before = nil, nil
    end
    index = 0
  end
end

local answer = pack('<I6', now) .. cmsgpack.pack(answers)
for i = 1, write_count do
  local counter = written[i]
  local ttl = expiries[counter]
  if ttl > 0 then
    ttl = ttl > now and ttl - now or 1
    redis.call('SET', KEYS[counter], states[counter], 'PX', ttl + slack)
  end
end
if ring then
  redis.call('HSET', ring, field, pack('<I7c8', sequence, fingerprint) .. answer)
  redis.call('PEXPIRE', ring, REMEMBERED_MS + slack)
end
if begins_epoch then
  redis.call('SET', KEYS[1], epoch, 'PX', EPOCH_MS)
end
return told and 'A' .. epoch .. answer .. cmsgpack.pack(told) or 'A' .. epoch .. answer
