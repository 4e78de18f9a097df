-- A bucket that a steady rate refills: `requests` units for each millisecond, `token` units to a token. It keeps what
-- is missing, so that nothing is a full bucket. `cold_max` is 0 unless it `warms` up.

local token_bucket, refund_token_bucket
if has_token_bucket == 1 then
  -- How long a rate needs for so many units, rounded up.
  local function refill_ms(units, rate)
    return rate == 0 and math.huge or (units + -units % rate) / rate
  end

  -- When it was last looked at, what is missing and how cold it is, as things stand now; and whether it was a state.
  local function stands_now(state, rate, token, warms, cold_max)
    local at, missing, cold
    if state and #state == SMALL_STATE_BYTES then
      local kind = state:byte(1)
      if kind == 0x13 then
        local rest
        at, missing, rest = unpack_bytes('<I6I7B', state, 2)
        cold = 0
        if missing > BUCKET_UNITS_MAX or rest ~= 0 then
          at = nil
        end
      elseif kind == 0x14 then
        -- 42 bits of time, 36 of what is missing, 34 of cold.
        local low, middle, high = unpack_bytes('<I6I4I4', state, 2)
        at = low % 2^42
        missing = (low - at) / 2^42 + middle % 2^30 * 64
        cold = (middle - middle % 2^30) / 2^30 + high * 4
      end
    end
    if not at or at > TIMESTAMP_MS_MAX then
      return now, 0, cold_max, false
    end
    if at - now > token then
      return now, 0, cold_max, true
    end
    if now > at and rate > 0 then
      -- Clamped before it is multiplied: more than fills and cools it changes nothing.
      local useful = refill_ms(missing, rate) + refill_ms(cold_max, rate)
      if now - at < useful then
        useful = now - at
      end
      local refill = useful * rate
      if refill > missing then
        cold = cold + refill - missing
        missing = 0
      else
        missing = missing - refill
      end
    end
    if cold > cold_max then
      cold = cold_max
    end
    if warms and missing > WARMING_MISSING_MAX then
      missing = WARMING_MISSING_MAX
    end
    return at > now and at or now, missing, cold, true
  end

  local function write(at, missing, cold, rate, warms, cold_max)
    local expires = at + refill_ms(missing + cold_max - cold, rate)
    if expires > TIMESTAMP_MS_MAX then
      expires = TIMESTAMP_MS_MAX
    end
    if not warms then
      return pack('<BI6I7B', 0x13, at, missing, 0), expires
    end
    local low, cold_low = missing % 64, cold % 4
    return pack('<BI6I4I4', 0x14, at + low * 2^42, (missing - low) / 64 + cold_low * 2^30, (cold - cold_low) / 4), expires
  end

  -- What so many tokens cost, and how much cold they use up.
  local function price(tokens, token, cold, warms, cold_max)
    local missing_max = warms and WARMING_MISSING_MAX or BUCKET_UNITS_MAX
    local tokens_max = (missing_max - missing_max % token) / token
    local plain = (tokens > tokens_max and tokens_max or tokens) * token
    if cold == 0 then
      return plain, 0
    end
    local used_up = plain < cold and plain or cold
    local warm = (cold_max - cold_max % 2) / 2
    local from = cold > warm and cold - warm or 0
    local to = cold - used_up > warm and cold - used_up - warm or 0
    local share = (from + to) * WEIGHT_ONE
    share = (share + -share % cold_max) / cold_max
    local surcharge = (from - to) * 2 * share
    return plain + (surcharge + -surcharge % WEIGHT_ONE) / WEIGHT_ONE, used_up
  end

  local function or_endless(ms)
    return ms == math.huge and ENDLESS or ms
  end

  token_bucket = function(state, n, manner, rate, token, burst, warms, cold_max)
    local at, missing, cold = stands_now(state, rate, token, warms, cold_max)
    local holds = burst * token
    local free = 0
    if holds > missing then
      free = holds - missing
      free = (free - free % token) / token
    end
    local taken = n
    if n > free and manner ~= FORCE then
      taken = manner == ALL and 0 or free
    end
    local behind = at > now and at - now or 0
    if taken == 0 then
      local full_ms = refill_ms(missing, rate)
      local least = manner == ALL and n or 1
      local retry = ENDLESS
      if least <= burst then
        local lacks = missing + least * token - holds
        retry = behind + refill_ms(lacks > 0 and lacks or 0, rate)
      end
      return 0, free, missing == 0 and 0 or or_endless(behind + full_ms), retry, 0
    end
    local cost, used_up = price(taken, token, cold, warms, cold_max)
    missing = missing + cost
    local missing_max = warms and WARMING_MISSING_MAX or BUCKET_UNITS_MAX
    if missing > missing_max then
      missing = missing_max
    end
    local full_ms = refill_ms(missing, rate)
    local remaining = 0
    if holds > missing then
      remaining = holds - missing
      remaining = (remaining - remaining % token) / token
    end
    return taken, remaining, or_endless(behind + full_ms), 0, or_endless(at + full_ms),
      write(at, missing, cold - used_up, rate, warms, cold_max)
  end

  -- As many of the tokens as are not refilled yet, at the plain price.
  refund_token_bucket = function(state, n, receipt, rate, token, warms, cold_max)
    local at, missing, cold, was = stands_now(state, rate, token, warms, cold_max)
    if was then
      local outstanding = receipt > at and receipt - at or 0
      local full_ms = refill_ms(missing, rate)
      outstanding = (outstanding > full_ms and full_ms or outstanding) * rate
      if rate == 0 then
        -- Nothing is ever refilled.
        outstanding = missing
      end
      local tokens_max = (BUCKET_UNITS_MAX - BUCKET_UNITS_MAX % token) / token
      local given = (n > tokens_max and tokens_max or n) * token
      if given > outstanding then
        given = outstanding
      end
      return write(at, missing > given and missing - given or 0, cold, rate, warms, cold_max)
    end
  end
end
