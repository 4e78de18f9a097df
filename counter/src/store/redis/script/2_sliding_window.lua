-- This window's count, plus the previous one's by the part of it that the last window's length still covers.

-- The first millisecond of a window at which the previous one's count weighs at most `room`.
local function lightens_at(count, room)
  local weight_max = count == 0 and WEIGHT_ONE or min(floor(room * WEIGHT_ONE / count), WEIGHT_ONE)
  return window_ms - floor(weight_max * window_ms / WEIGHT_ONE)
end

local function read_sliding_window(state)
  if state and #state == SMALL_STATE_BYTES then
    local kind, window, current, previous = unpack_bytes('<BI4I5I5', state)
    if kind == 0x12 and current <= REQUESTS_MAX and previous <= REQUESTS_MAX then
      return window, current, previous
    end
  end
end

local function sliding_window(state)
  local here = now + shift
  local window = min(floor(here / window_ms), WINDOW_NUMBER_MAX)
  local current, previous = 0, 0
  local its_window, its_current, its_previous = read_sliding_window(state)
  if its_window == window or its_window == window + 1 then
    window, current, previous = its_window, its_current, its_previous
  elseif its_window == window - 1 then
    previous = its_current
  end
  local used = current
  if previous > 0 then
    local left = max(window_ms - max(here - start_of(window), 0), 0)
    used = current + ceil(previous * ceil(left * WEIGHT_ONE / window_ms) / WEIGHT_ONE)
  end
  local taken = taken_of(max(requests - used, 0))
  if taken == 0 then
    local reset, retry = 0, ENDLESS
    if current > 0 then
      reset = max(start_of(window + 2) - here, 0)
    elseif previous > 0 then
      reset = max(start_of(window + 1) - here, 0)
    end
    if least() <= requests then
      local room = requests - least()
      if room >= current then
        retry = max(start_of(window) + lightens_at(previous, room - current) - here, 0)
      else
        retry = max(start_of(window + 1) + lightens_at(current, room) - here, 0)
      end
    end
    return 0, max(requests - used, 0), reset, retry, window
  end
  current = min(current + taken, REQUESTS_MAX)
  return taken, max(requests - used - taken, 0), max(start_of(window + 2) - here, 0), 0, window,
    pack('<BI4I5I5', 0x12, window, current, previous), begins_at(window + 2)
end

local function refund_sliding_window(state, receipt)
  local window, current, previous = read_sliding_window(state)
  if window then
    if receipt == window then
      current = max(current - n, 0)
    elseif receipt + 1 == window then
      previous = max(previous - n, 0)
    end
    return pack('<BI4I5I5', 0x12, window, current, previous), begins_at(window + 2)
  end
end
