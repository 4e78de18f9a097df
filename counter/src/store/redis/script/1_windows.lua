-- Windows that are counted in one number: fixed windows, and the calendar.

local DAY_MS = 86400000
local DAYS_BEFORE_MONTH = '\0\0\31\0\59\0\90\0\120\0\151\0\181\0\212\0\243\0\17\1\48\1\78\1'

-- Days from the epoch to the first of a month, counted from January 1970.
local function month_start_day(month)
  local years = floor(month / 12)
  local of_year = month % 12
  local year = years + 1970
  local before = year - 1
  local leap_days = floor(before / 4) - floor(before / 100) + floor(before / 400) - 477
  local is_leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
  local days = years * 365 + leap_days + unpack_bytes('<I2', DAYS_BEFORE_MONTH, of_year * 2 + 1)
  return (is_leap and of_year > 1) and days + 1 or days
end

local function month_at(ms)
  local days = floor(ms / DAY_MS)
  local month = floor(days / 28)
  while month > 0 and month_start_day(month) > days do
    month = month - max(floor((month_start_day(month) - days) / 31), 1)
  end
  return month
end

-- When a window begins, by the key's own reckoning. A month has no length: its window_ms is 0.
local function start_of(window)
  window = min(window, WINDOW_NUMBER_MAX)
  return window_ms == 0 and month_start_day(window) * DAY_MS or window * window_ms
end

-- When a window begins, for all.
local function begins_at(window)
  return min(max(start_of(window) - shift, 0), TIMESTAMP_MS_MAX)
end

-- The window and the count of a state, or nothing if it is none.
local function read_fixed_window(state)
  if state and #state == SMALL_STATE_BYTES then
    local kind, window, count, rest = unpack_bytes('<BI4I5I5', state)
    if kind == 0x11 and count <= REQUESTS_MAX and rest == 0 then
      return window, count
    end
  end
end

local function fixed_window(state)
  local here = now + shift
  local window = window_ms == 0 and month_at(here) or min(floor(here / window_ms), WINDOW_NUMBER_MAX)
  local count = 0
  local its_window, its_count = read_fixed_window(state)
  -- One window ahead: the clock stepped back, and stands still until it has caught up.
  if its_window == window or its_window == window + 1 then
    window, count = its_window, its_count
  end
  local taken = taken_of(max(requests - count, 0))
  local to_end = max(start_of(window + 1) - here, 0)
  if taken == 0 then
    local reset = count == 0 and 0 or to_end
    return 0, max(requests - count, 0), reset, least() > requests and ENDLESS or to_end, window
  end
  count = min(count + taken, REQUESTS_MAX)
  return taken, max(requests - count, 0), to_end, 0, window,
    pack('<BI4I5I5', 0x11, window, count, 0), begins_at(window + 1)
end

local function refund_fixed_window(state, receipt)
  local window, count = read_fixed_window(state)
  if window then
    if window == receipt then
      count = max(count - n, 0)
    end
    return pack('<BI4I5I5', 0x11, window, count, 0), begins_at(window + 1)
  end
end
