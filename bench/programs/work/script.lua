-- Rounds of what Lua programs do: compile, build trees, cut and join strings, fill tables,
-- make closures and coroutines. Prints a checksum of each round.
local rounds = tonumber(arg[1])
local state = 42

local function chance(limit)
  state = (state * 1103515245 + 12345) & 0x7fffffff
  return (state >> 8) % limit
end

local function checksum(text)
  local sum = #text
  for i = 1, #text, 7 do
    sum = (sum * 31 + text:byte(i)) & 0xffffffffffff
  end
  return sum
end

-- A module in Lua: many functions with constants, tables and nested closures.
local function source(functions)
  local lines = { "local module = {}" }
  for i = 1, functions do
    lines[#lines + 1] = ([[
function module.part%d(first, second)
  local held = { name = "part %d", size = %d, first, second, { %d, %d } }
  local function inner(value)
    if value > %d then return value - held.size else return held[3][1] + value end
  end
  for i = 1, 3 do first = inner(first + i) end
  return first + #held.name, held
end]]):format(i, i, chance(1000), chance(90), chance(90), chance(500))
  end
  lines[#lines + 1] = "return module"
  return table.concat(lines, "\n")
end

local function compile(text)
  local module = assert(load(string.dump(assert(load(text)))))()
  local sum = 0
  for name, part in pairs(module) do
    sum = sum + part(#name, 2)
  end
  return sum
end

local function tree(depth)
  if depth == 0 then
    return { false, false }
  end
  return { tree(depth - 1), tree(depth - 1) }
end

local function count(node)
  return node[1] and 1 + count(node[1]) + count(node[2]) or 1
end

local function words(lines)
  local counts, text = {}, {}
  for i = 1, lines do
    text[i] = ("word%d of line%d and word%d"):format(chance(3000), i, chance(300))
  end
  for word in table.concat(text, "\n"):gmatch("%a+%d*") do
    counts[word] = (counts[word] or 0) + 1
  end
  local sorted = {}
  for word, times in pairs(counts) do
    sorted[#sorted + 1] = word:upper() .. "=" .. times
  end
  table.sort(sorted)
  return checksum(table.concat(sorted, ";"):gsub("WORD(%d)", "<%1>"))
end

-- Records that come and go, with some that stay from round to round.
local live, size = {}, 20000
local function records(steps)
  local sum = 0
  for step = 1, steps do
    local slot = chance(size) + 1
    local old = live[slot]
    sum = sum + (old and #old.text or 0)
    live[slot] = {
      id = step,
      text = ("x"):rep(chance(120)),
      tags = { chance(9), chance(9), chance(9) },
      call = function() return step + slot end,
    }
    sum = sum + live[slot].call()
  end
  return sum
end

local function generators(stages, items)
  local from = coroutine.wrap(function()
    for i = 1, items do coroutine.yield({ i }) end
  end)
  for stage = 1, stages do
    local upstream = from
    from = coroutine.wrap(function()
      for item in upstream do coroutine.yield({ item[1] + stage, item }) end
    end)
  end
  local sum = 0
  for item in from do sum = sum + item[1] end
  return sum
end

local text = source(400)
for round = 1, rounds do
  print(round, compile(text), count(tree(12)), words(2500), records(15000),
        generators(8, 400))
end
