-- This window's count, plus the previous one's by the part of it that the last window's length still covers.

local sliding_window, refund_sliding_window
if has_sliding_window == 1 then
  -- How long from `here` until `count` of the window before `window` weighs at most `room`.
  local function lightens_in(window, count, room, window_ms, here)
    local weight_max = WEIGHT_ONE
    if count > room then
      weight_max = room * WEIGHT_ONE
      weight_max = (weight_max - weight_max % count) / count
    end
    local left_max = weight_max * window_ms
    left_max = (left_max - left_max % WEIGHT_ONE) / WEIGHT_ONE
    local wait = window * window_ms + window_ms - left_max - here
    return wait < 0 and 0 or wait
  end

  -- When the window after the next begins, by the key's own reckoning.
  local function end_of(window, window_ms)
    window = window + 2
    return (window > WINDOW_NUMBER_MAX and WINDOW_NUMBER_MAX or window) * window_ms
  end

  sliding_window = function(state, n, manner, requests, window_ms, shift)
    local here = now + shift
    local window = (here - here % window_ms) / window_ms
    local current, previous = 0, 0
    if state and #state == SMALL_STATE_BYTES then
      local kind, its_window, its_current, its_previous = unpack_bytes('<BI4I5I5', state)
      if kind == 0x12 and its_current <= REQUESTS_MAX and its_previous <= REQUESTS_MAX then
        if its_window == window or its_window == window + 1 then
          window, current, previous = its_window, its_current, its_previous
        elseif its_window == window - 1 then
          previous = its_current
        end
      end
    end
    local used = current
    if previous > 0 then
      local elapsed = here - window * window_ms
      local weight = (elapsed > 0 and window_ms - elapsed or window_ms) * WEIGHT_ONE
      weight = (weight + -weight % window_ms) / window_ms
      local weighted = previous * weight
      used = current + (weighted + -weighted % WEIGHT_ONE) / WEIGHT_ONE
    end
    local free = requests > used and requests - used or 0
    local taken = n
    if n > free and manner ~= FORCE then
      taken = manner == ALL and 0 or free
    end
    if taken > 0 then
      current = current + taken
      if current > REQUESTS_MAX then
        current = REQUESTS_MAX
      end
      local ends = end_of(window, window_ms)
      local expires = ends - shift
      return taken, free > taken and free - taken or 0, ends > here and ends - here or 0, 0, window,
        pack('<BI4I5I5', 0x12, window, current, previous),
        expires > TIMESTAMP_MS_MAX and TIMESTAMP_MS_MAX or expires
    end
    local reset, retry = 0, ENDLESS
    if current > 0 then
      reset = end_of(window, window_ms) - here
    elseif previous > 0 then
      reset = end_of(window - 1, window_ms) - here
    end
    local room = requests - (manner == ALL and n or 1)
    if room >= current then
      retry = lightens_in(window, previous, room - current, window_ms, here)
    elseif room >= 0 then
      local next_window = window < WINDOW_NUMBER_MAX and window + 1 or window
      retry = lightens_in(next_window, current, room, window_ms, here)
    end
    return 0, free, reset > 0 and reset or 0, retry, window
  end

  refund_sliding_window = function(state, n, receipt, window_ms, shift)
    if state and #state == SMALL_STATE_BYTES then
      local kind, window, current, previous = unpack_bytes('<BI4I5I5', state)
      if kind == 0x12 and current <= REQUESTS_MAX and previous <= REQUESTS_MAX then
        if receipt == window then
          current = current > n and current - n or 0
        elseif receipt + 1 == window then
          previous = previous > n and previous - n or 0
        end
        local expires = end_of(window, window_ms) - shift
        return pack('<BI4I5I5', 0x12, window, current, previous),
          expires > TIMESTAMP_MS_MAX and TIMESTAMP_MS_MAX or expires < 0 and 0 or expires
      end
    end
  end
end
