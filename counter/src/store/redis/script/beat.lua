-- What a service tells once a second, and asks when in doubt: that it can write, who is there, and the time.
--
-- KEYS[1]   the epoch, which lives on while a service runs
-- KEYS[2]   a key to try to write
-- KEYS[3..] the proxies of a namespace, a sorted set by when they were last seen
-- ARGV[1]   how long the epoch lives; ARGV[2] how long a proxy counts
-- ARGV[3]   the time, if a test tells it; 0 asks the server
-- ARGV[4..] the proxies seen in each namespace, 8 bytes each
-- Returns now, and how many proxies each namespace has.

local now = tonumber(ARGV[3])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local answer = { now }
for i = 3, #KEYS do
  local key, proxies = KEYS[i], ARGV[i + 1]
  for from = 1, #proxies, 8 do
    redis.call('ZADD', key, now, proxies:sub(from, from + 7))
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - ARGV[2])
  redis.call('PEXPIRE', key, ARGV[2])
  answer[i - 1] = redis.call('ZCARD', key)
end
return answer
