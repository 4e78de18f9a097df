-- When each was taken, the oldest first: a time and a count in turn. What is taken at t counts until t + window_ms.

local sliding_log, refund_sliding_log
if has_sliding_log == 1 then
  local min, max = math.min, math.max

  -- Times and counts in turn; nothing if it is no state.
  local function read(state)
    local runs, length = read_numbers(state, 0x16)
    if not runs or length % 2 ~= 0 or length > 2 * RUNS_MAX then
      return
    end
    local at = 0
    for i = 1, length, 2 do
      local since, count = runs[i], runs[i + 1]
      at = at + since
      if count == 0 or count > REQUESTS_MAX or at > TIMESTAMP_MS_MAX or (since == 0 and i > 1) then
        return
      end
      runs[i] = at
    end
    return runs, length
  end

  local function write(runs, length, window_ms)
    local expires = min((runs[length - 1] or 0) + window_ms, TIMESTAMP_MS_MAX)
    for i = length - 1, 3, -2 do
      runs[i] = runs[i] - runs[i - 2]
    end
    return write_numbers(0x16, runs), expires
  end

  -- The runs that still count, their number of fields, what they add up to, and the time by the log's own reckoning.
  local function stands_now(state, window_ms)
    local runs, length = read(state)
    if not runs then
      return {}, 0, 0, now
    end
    local latest = runs[length - 1] or now
    if latest - now > window_ms then
      return {}, 0, 0, now
    end
    local here = max(now, latest)
    local kept, used, left = {}, 0, 0
    for i = 1, length, 2 do
      if here - runs[i] < window_ms then
        kept[left + 1], kept[left + 2] = runs[i], runs[i + 1]
        left = left + 2
        used = used + runs[i + 1]
      end
    end
    return kept, left, used, here
  end

  -- How long until `amount` fits if nothing more is taken.
  local function wait_for(amount, runs, length, used, requests, window_ms)
    for i = 1, length, 2 do
      used = used - runs[i + 1]
      if used + amount <= requests then
        return max(runs[i] + window_ms - now, 0)
      end
    end
    return 0
  end

  sliding_log = function(state, n, manner, requests, window_ms)
    local runs, length, used, here = stands_now(state, window_ms)
    local free = max(requests - used, 0)
    local taken = n
    if n > free and manner ~= FORCE then
      taken = manner == ALL and 0 or free
    end
    if taken == 0 then
      local reset = length == 0 and 0 or max(runs[length - 1] + window_ms - now, 0)
      local least = manner == ALL and n or 1
      local retry = least > requests and ENDLESS or wait_for(least, runs, length, used, requests, window_ms)
      return 0, free, reset, retry, here
    end
    if runs[length - 1] == here then
      runs[length] = min(runs[length] + taken, REQUESTS_MAX)
    else
      runs[length + 1], runs[length + 2] = here, min(taken, REQUESTS_MAX)
      length = length + 2
    end
    -- Only debt has more: then the two oldest are taken as one, at the later time.
    if length > 2 * RUNS_MAX then
      runs[4] = min(runs[4] + runs[2], REQUESTS_MAX)
      table.remove(runs, 1)
      table.remove(runs, 1)
      length = length - 2
    end
    return taken, max(free - taken, 0), max(here + window_ms - now, 0), 0, here,
      write(runs, length, window_ms)
  end

  refund_sliding_log = function(state, n, receipt, window_ms)
    local runs, length = read(state)
    if runs then
      for i = 1, length, 2 do
        if runs[i] == receipt then
          runs[i + 1] = max(runs[i + 1] - n, 0)
          if runs[i + 1] == 0 then
            table.remove(runs, i)
            table.remove(runs, i)
            length = length - 2
          end
          break
        end
      end
      return write(runs, length, window_ms)
    end
  end
end
