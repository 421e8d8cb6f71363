-- Prints a summary of work in tables, strings and coroutines.
local state = 7

local function chance(limit)
  state = (state * 1103515245 + 12345) & 0x7fffffff
  return state % limit
end

local function checksum(text)
  local sum = 0
  for i = 1, #text do
    sum = (sum * 31 + text:byte(i)) & 0xffffffffffff
  end
  return sum
end

local function tree(depth)
  if depth == 0 then
    return {}
  end
  return { tree(depth - 1), tree(depth - 1), ("t"):rep(depth * 7) }
end

local function count(node)
  if not node[1] then
    return 1
  end
  return count(node[1]) + count(node[2]) + #node[3]
end

local function churn(steps)
  local live, order = {}, {}
  for step = 1, steps do
    local key = ("k%d"):format(chance(20000))
    live[key] = { step, key:rep(1 + chance(30)), setmetatable({}, { __gc = function() end }) }
    order[#order + 1] = key
    if #order > 5000 then
      live[table.remove(order, 1 + chance(#order))] = nil
    end
  end
  local keys = {}
  for key, value in pairs(live) do
    keys[#keys + 1] = key .. #value[2]
  end
  table.sort(keys)
  return checksum(table.concat(keys, ","))
end

local function pipeline(count_of_stages, items)
  local source = coroutine.wrap(function()
    for i = 1, items do
      coroutine.yield(("item %d "):format(i):rep(1 + chance(10)))
    end
  end)
  for _ = 1, count_of_stages do
    local upstream = source
    source = coroutine.wrap(function()
      for text in upstream do
        coroutine.yield((text:gsub("%d", function(digit)
          return (digit + 1) % 10
        end)))
      end
    end)
  end
  local sum = 0
  for text in source do
    sum = sum + checksum(text)
  end
  return sum
end

for _, mode in ipairs({ "incremental", "generational" }) do
  collectgarbage(mode)
  print(mode, count(tree(14)), churn(25000), pipeline(8, 800))
end

local buffer = ""
for i = 1, 12000 do
  buffer = buffer .. chance(100)
end
print("string", #buffer, checksum(buffer))

local large = {}
for round = 1, 6 do
  for i = 1, 1 << 17 do
    large[i] = i ~ round
  end
  large = table.move(large, 1, 1 << 16, 1, {})
end
print("array", #large, large[#large])
collectgarbage()
print("kept less than 64 MiB", collectgarbage("count") < 65536)
