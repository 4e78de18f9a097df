-- A count that starts again with each window.

local month_start, month_at
if has_month == 1 then
  -- Days of a year before each of its months, two bytes each.
  local days_before = '\0\0\31\0\59\0\90\0\120\0\151\0\181\0\212\0\243\0\17\1\48\1\78\1'

  -- When a month begins, counted from January 1970.
  month_start = function(month)
    local of_year = month % 12
    local years = (month - of_year) / 12
    local year = years + 1970
    local before = year - 1
    local leap_days = (before - before % 4) / 4 - (before - before % 100) / 100 + (before - before % 400) / 400 - 477
    local days = years * 365 + leap_days + unpack_bytes('<I2', days_before, of_year * 2 + 1)
    if of_year > 1 and year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0) then
      days = days + 1
    end
    return days * DAY_MS
  end

  -- From the length of a month on average: an estimate from above, corrected downwards.
  month_at = function(ms)
    local month = (ms - ms % 2629746000) / 2629746000 + 1
    while month_start(month) > ms do
      month = month - 1
    end
    return month
  end
end

local fixed_window, refund_fixed_window
if has_fixed_window == 1 then
  -- When a window begins, by the key's own reckoning.
  local function start_of(window, window_ms)
    if window > WINDOW_NUMBER_MAX then
      window = WINDOW_NUMBER_MAX
    end
    return window_ms == 0 and month_start(window) or window * window_ms
  end

  -- When the window after this one begins, for all.
  local function expires_at(window, window_ms, shift)
    local at = start_of(window + 1, window_ms) - shift
    return at > TIMESTAMP_MS_MAX and TIMESTAMP_MS_MAX or at < 0 and 0 or at
  end

  fixed_window = function(state, n, manner, requests, window_ms, shift)
    local here = now + shift
    local window = window_ms == 0 and month_at(here) or (here - here % window_ms) / window_ms
    local count = 0
    if state and #state == SMALL_STATE_BYTES then
      local kind, its_window, its_count, rest = unpack_bytes('<BI4I5I5', state)
      -- One window ahead: the clock stepped back, and stands still until it has caught up.
      if kind == 0x11 and (its_window == window or its_window == window + 1)
        and its_count <= REQUESTS_MAX and rest == 0 then
        window, count = its_window, its_count
      end
    end
    local free = requests > count and requests - count or 0
    local to_end = start_of(window + 1, window_ms) - here
    if to_end < 0 then
      to_end = 0
    end
    local taken = n
    if n > free and manner ~= FORCE then
      taken = manner == ALL and 0 or free
    end
    if taken == 0 then
      local least = manner == ALL and n or 1
      return 0, free, count == 0 and 0 or to_end, least > requests and ENDLESS or to_end, window
    end
    count = count + taken
    if count > REQUESTS_MAX then
      count = REQUESTS_MAX
    end
    return taken, requests > count and requests - count or 0, to_end, 0, window,
      pack('<BI4I5I5', 0x11, window, count, 0), expires_at(window, window_ms, shift)
  end

  refund_fixed_window = function(state, n, receipt, window_ms, shift)
    if state and #state == SMALL_STATE_BYTES then
      local kind, window, count, rest = unpack_bytes('<BI4I5I5', state)
      if kind == 0x11 and count <= REQUESTS_MAX and rest == 0 then
        if window == receipt then
          count = count > n and count - n or 0
        end
        return pack('<BI4I5I5', 0x11, window, count, 0), expires_at(window, window_ms, shift)
      end
    end
  end
end
