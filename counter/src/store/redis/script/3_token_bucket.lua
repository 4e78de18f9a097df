-- A bucket that a steady rate refills: `requests` units for each millisecond, `window_ms` units to a token. It keeps
-- what is missing, so that nothing is a full bucket. `cold_max` is 0 unless it `warms` up.

-- How long a rate of `requests` needs for `units`, rounded up.
local function refill_ms(units)
  return requests == 0 and math.huge or ceil(units / requests)
end

local function read_token_bucket(state)
  if not state or #state ~= SMALL_STATE_BYTES then
    return
  end
  local kind = state:byte(1)
  if kind == 0x13 then
    local at, missing, rest = unpack_bytes('<I6I7B', state, 2)
    if at <= TIMESTAMP_MS_MAX and missing <= BUCKET_UNITS_MAX and rest == 0 then
      return at, missing, 0
    end
  elseif kind == 0x14 then
    -- 42 bits of time, 36 of what is missing, 34 of cold.
    local low, middle, high = unpack_bytes('<I6I4I4', state, 2)
    local at = low % 2^42
    if at <= TIMESTAMP_MS_MAX then
      return at, floor(low / 2^42) + middle % 2^30 * 64, floor(middle / 2^30) + high * 4
    end
  end
end

-- When it was last looked at, what is missing and how cold it is, as things stand now; and whether it was a state.
local function bucket_now(state)
  local at, missing, cold = read_token_bucket(state)
  if not at then
    return now, 0, cold_max, false
  end
  if at - now > window_ms then
    return now, 0, cold_max, true
  end
  local useful = min(max(now - at, 0), refill_ms(missing) + refill_ms(cold_max))
  local refill = requests == 0 and 0 or useful * requests
  cold = min(cold + max(refill - missing, 0), cold_max)
  missing = max(missing - refill, 0)
  if warms then
    missing = min(missing, WARMING_MISSING_MAX)
  end
  return max(at, now), missing, cold, true
end

local function write_token_bucket(at, missing, cold)
  local fresh_ms = refill_ms(missing + max(cold_max - cold, 0))
  local expires = min(at + fresh_ms, TIMESTAMP_MS_MAX)
  if not warms then
    return pack('<BI6I7B', 0x13, at, missing, 0), expires
  end
  local low = at + missing % 64 * 2^42
  local middle = floor(missing / 64) + cold % 4 * 2^30
  return pack('<BI6I4I4', 0x14, low, middle, floor(cold / 4)), expires
end

-- What so many tokens cost, and how much cold they use up.
local function price(tokens, cold)
  local missing_max = warms and WARMING_MISSING_MAX or BUCKET_UNITS_MAX
  local plain = min(tokens, floor(missing_max / window_ms)) * window_ms
  if not warms then
    return plain, 0
  end
  local used_up = min(plain, cold)
  local warm = floor(cold_max / 2)
  local from = max(cold - warm, 0)
  local to = max(cold - used_up - warm, 0)
  local share = cold_max == 0 and 0 or ceil((from + to) * WEIGHT_ONE / cold_max)
  return plain + ceil((from - to) * 2 * share / WEIGHT_ONE), used_up
end

local function or_endless(ms)
  return ms == math.huge and ENDLESS or ms
end

local function token_bucket(state)
  local at, missing, cold = bucket_now(state)
  local holds = burst * window_ms
  local taken = taken_of(max(floor((holds - missing) / window_ms), 0))
  local behind = max(at - now, 0)
  if taken == 0 then
    local reset, retry = 0, ENDLESS
    if missing > 0 then
      reset = or_endless(behind + refill_ms(missing))
    end
    if least() <= burst then
      retry = or_endless(behind + refill_ms(max(missing + least() * window_ms - holds, 0)))
    end
    local remaining = max(floor((holds - missing) / window_ms), 0)
    return 0, remaining, reset, retry, or_endless(at + refill_ms(missing))
  end
  local cost, used_up = price(taken, cold)
  missing = min(missing + cost, warms and WARMING_MISSING_MAX or BUCKET_UNITS_MAX)
  local full_ms = refill_ms(missing)
  local remaining = max(floor((holds - missing) / window_ms), 0)
  return taken, remaining, or_endless(behind + full_ms), 0, or_endless(at + full_ms),
    write_token_bucket(at, missing, max(cold - used_up, 0))
end

-- As many of the tokens as are not refilled yet, at the plain price.
local function refund_token_bucket(state, receipt)
  local at, missing, cold, was = bucket_now(state)
  if was then
    local outstanding = min(max(receipt - at, 0), refill_ms(missing)) * requests
    local given = min(n, floor(BUCKET_UNITS_MAX / window_ms)) * window_ms
    return write_token_bucket(at, max(missing - min(given, outstanding), 0), cold)
  end
end
