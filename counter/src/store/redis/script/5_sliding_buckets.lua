-- Counts in sub-windows, each `window_ms` long; `buckets` of them are a window. All that the last window's length
-- touches counts: the current sub-window and as many before it as a window has.

local sliding_buckets, refund_sliding_buckets
if has_sliding_buckets == 1 then
  local min, max = math.min, math.max

  -- The current sub-window and the counts, the latest first; nothing if it is no state.
  local function read(state)
    local numbers, length = read_numbers(state, 0x15)
    if not numbers or length == 0 or length > COUNTS_MAX + 1 or numbers[1] > WINDOW_NUMBER_MAX then
      return
    end
    for i = 2, length do
      if numbers[i] > REQUESTS_MAX then
        return
      end
    end
    if length > 1 and numbers[length] == 0 then
      return
    end
    return table.remove(numbers, 1), numbers
  end

  -- One form for each state: no zeros at the end.
  local function trim(counts)
    while counts[#counts] == 0 do
      counts[#counts] = nil
    end
  end

  -- The sub-window in which this state is as good as fresh: when its latest count leaves.
  local function fresh_from(window, counts, buckets)
    local age = 0
    for i = 1, #counts do
      if counts[i] > 0 then
        age = i - 1
        break
      end
    end
    return min(window + buckets + 1, WINDOW_NUMBER_MAX) - age
  end

  local function write(window, counts, window_ms, shift, buckets)
    local expires = fresh_from(window, counts, buckets) * window_ms - shift
    if expires > TIMESTAMP_MS_MAX then
      expires = TIMESTAMP_MS_MAX
    end
    table.insert(counts, 1, window)
    return write_numbers(0x15, counts), expires
  end

  -- The state as it stands now.
  local function stands_now(state, window_ms, shift, buckets)
    local here = now + shift
    local window = (here - here % window_ms) / window_ms
    local its_window, counts = read(state)
    if not its_window or its_window > window + buckets or its_window + buckets < window then
      return window, {}
    end
    for _ = its_window + 1, window do
      table.insert(counts, 1, 0)
    end
    while #counts > buckets + 1 do
      counts[#counts] = nil
    end
    trim(counts)
    return window > its_window and window or its_window, counts
  end

  -- How long until `amount` fits if nothing more is taken.
  local function wait_for(amount, window, counts, used, requests, window_ms, shift, buckets)
    for i = #counts, 1, -1 do
      used = used - counts[i]
      if used + amount <= requests then
        local leaves = min(window + buckets + 1, WINDOW_NUMBER_MAX) - (i - 1)
        return max(leaves * window_ms - now - shift, 0)
      end
    end
    return 0
  end

  sliding_buckets = function(state, n, manner, requests, window_ms, shift, buckets)
    local window, counts = stands_now(state, window_ms, shift, buckets)
    local used = 0
    for i = 1, #counts do
      used = used + counts[i]
    end
    local free = max(requests - used, 0)
    local taken = n
    if n > free and manner ~= FORCE then
      taken = manner == ALL and 0 or free
    end
    if taken == 0 then
      local reset = #counts == 0 and 0 or max(fresh_from(window, counts, buckets) * window_ms - now - shift, 0)
      local least = manner == ALL and n or 1
      local retry = least > requests and ENDLESS or wait_for(least, window, counts, used, requests, window_ms, shift, buckets)
      return 0, free, reset, retry, window
    end
    counts[1] = min((counts[1] or 0) + taken, REQUESTS_MAX)
    local reset = max(fresh_from(window, counts, buckets) * window_ms - now - shift, 0)
    return taken, max(free - taken, 0), reset, 0, window, write(window, counts, window_ms, shift, buckets)
  end

  refund_sliding_buckets = function(state, n, receipt, window_ms, shift, buckets)
    local window, counts = read(state)
    if window then
      local i = window - receipt + 1
      if counts[i] then
        counts[i] = max(counts[i] - n, 0)
      end
      trim(counts)
      return write(window, counts, window_ms, shift, buckets)
    end
  end
end
