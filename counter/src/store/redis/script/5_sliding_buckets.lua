-- Counts in sub-windows, each `window_ms` long; `buckets` of them are a window. All that the last window's length
-- touches counts: the current sub-window and as many before it as a window has.

-- The current sub-window and the counts, the latest first; nothing if it is no state.
local function read_sliding_buckets(state)
  local numbers, length = read_numbers(state, 0x15)
  if not numbers or length == 0 or length > BUCKETS_MAX + 2 or numbers[1] > WINDOW_NUMBER_MAX then
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
local function fresh_from(window, counts)
  local age = 0
  for i = 1, #counts do
    if counts[i] > 0 then
      age = i - 1
      break
    end
  end
  return min(window + buckets + 1, WINDOW_NUMBER_MAX) - age
end

local function write_sliding_buckets(window, counts)
  local expires = begins_at(fresh_from(window, counts))
  table.insert(counts, 1, window)
  return write_numbers(0x15, counts), expires
end

-- The state as it stands now.
local function buckets_now(state)
  local window = min(floor((now + shift) / window_ms), WINDOW_NUMBER_MAX)
  local its_window, counts = read_sliding_buckets(state)
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
  return max(window, its_window), counts
end

-- How long until `amount` fits if nothing more is taken.
local function buckets_wait(window, counts, used, amount)
  for i = #counts, 1, -1 do
    used = used - counts[i]
    if used + amount <= requests then
      local leaves = min(window + buckets + 1, WINDOW_NUMBER_MAX) - (i - 1)
      return max(start_of(leaves) - now - shift, 0)
    end
  end
  return 0
end

local function sliding_buckets(state)
  local window, counts = buckets_now(state)
  local used = 0
  for i = 1, #counts do
    used = used + counts[i]
  end
  local taken = taken_of(max(requests - used, 0))
  if taken == 0 then
    local reset = #counts == 0 and 0 or max(start_of(fresh_from(window, counts)) - now - shift, 0)
    local retry = least() > requests and ENDLESS or buckets_wait(window, counts, used, least())
    return 0, max(requests - used, 0), reset, retry, window
  end
  counts[1] = min((counts[1] or 0) + taken, REQUESTS_MAX)
  local reset = max(start_of(fresh_from(window, counts)) - now - shift, 0)
  return taken, max(requests - used - taken, 0), reset, 0, window, write_sliding_buckets(window, counts)
end

local function refund_sliding_buckets(state, receipt)
  local window, counts = read_sliding_buckets(state)
  if window then
    local i = window - receipt + 1
    if counts[i] then
      counts[i] = max(counts[i] - n, 0)
    end
    trim(counts)
    return write_sliding_buckets(window, counts)
  end
end
