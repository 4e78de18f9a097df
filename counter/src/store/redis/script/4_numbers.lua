-- Numbers in groups of seven bits, low first, the high bit set on all but the last.

local read_numbers, write_numbers
if has_sliding_buckets == 1 or has_sliding_log == 1 then
  -- All numbers of a state of this kind, and how many; nothing if it is none.
  read_numbers = function(state, kind)
    if not state or state:byte(1) ~= kind then
      return
    end
    local numbers, count = {}, 0
    local value, scale = 0, 1
    local length = #state
    for from = 2, length, 4096 do
      local groups = { state:byte(from, from + 4095) }
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
  write_numbers = function(kind, numbers)
    local char = string.char
    for i = 1, #numbers do
      local value = numbers[i]
      local bytes = ''
      while value >= 128 do
        local low = value % 128
        bytes = bytes .. char(low + 128)
        value = (value - low) / 128
      end
      numbers[i] = bytes .. char(value)
    end
    return char(kind) .. table.concat(numbers)
  end
end
