-- Numbers in groups of seven bits, low first, the high bit set on all but the last.

-- All numbers of a state of this kind, and how many; nothing if it is none.
local function read_numbers(state, kind)
  if not state or state:byte(1) ~= kind then
    return
  end
  local numbers, count = {}, 0
  local value, scale = 0, 1
  local length = #state
  for from = 2, length, 4096 do
    local groups = { state:byte(from, min(from + 4095, length)) }
    for i = 1, #groups do
      local group = groups[i]
      if group >= 128 then
        value = value + (group - 128) * scale
        scale = scale * 128
        if scale > 2^56 then
          return
        end
      elseif group == 0 and scale > 1 then
        return -- longer than it need be
      else
        count = count + 1
        numbers[count] = value + group * scale
        value, scale = 0, 1
      end
    end
  end
  if scale == 1 then
    return numbers, count
  end
end

-- Each number becomes its bytes, in place.
local function write_numbers(kind, numbers)
  for i = 1, #numbers do
    local value = numbers[i]
    if value < 128 then
      numbers[i] = string.char(value)
    elseif value < 16384 then
      numbers[i] = string.char(value % 128 + 128, floor(value / 128))
    else
      local groups = {}
      while value >= 128 do
        groups[#groups + 1] = value % 128 + 128
        value = floor(value / 128)
      end
      groups[#groups + 1] = value
      numbers[i] = string.char(unpack(groups))
    end
  end
  return string.char(kind) .. table.concat(numbers)
end
