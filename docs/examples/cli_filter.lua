-- The size of a job before it is submitted: /etc/slurm/cli_filter.lua, CliFilterPlugins=lua.
--
-- It runs in sbatch, as who submits. Whatever goes wrong, and after SECONDS, the job goes as it is:
-- an error or a wait in here would else stop every submission. HEADER is a file with the line
-- "Authorization: Bearer TOKEN"; all who submit read it, so the token's role is owner at most.

local URL = "http://127.0.0.1:8501/api/v1/size"
local HEADER = "/etc/slurm/trimtab.header"
local SECONDS = 1
local NAMES = { "nodes", "gres", "gpus", "gpus-per-node", "time", "partition", "export" }

local function script_of(options)
    if options["wrap"] then
        return options["wrap"]
    end
    local file = assert(io.open(options["argv"][1], "r"), "no script to read")
    local text = file:read("*a")
    file:close()
    return text
end

local function answer_to(body)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(body)
    file:close()
    local curl = io.popen(
        "curl --silent --fail --max-time " .. SECONDS .. " --header @" .. HEADER
            .. " --header 'Content-Type: text/plain' --data-binary @" .. path .. " " .. URL, "r")
    local answer = curl:read("*a")
    curl:close()
    os.remove(path)
    return answer
end

local function size(options)
    if options["type"] ~= "sbatch" then
        return
    end
    local words = {}
    for _, name in ipairs(NAMES) do
        local value = options[name]
        if value and value:match("^[%w_.,:=/+-]+$") then
            words[#words + 1] = "--" .. name .. "=" .. value
        end
    end
    local head = "#TRIMTAB options = '" .. table.concat(words, " ") .. "'\n"
    local answer = answer_to(head .. script_of(options))
    local model, gpus = answer:match('"gpu":"([^"]*)"'), answer:match('"gpus":(%d+)')
    if not model then
        return
    end
    local chance = tonumber(answer:match('"fit_probability":([%d.]+)'))
    slurm.log_info("Trimtab: %s x %s, fits with %d %%", gpus, model, 100 * chance)
    for name, value in answer:match('"options":(%b{})'):gmatch('"([%w-]+)":"([^"\\]*)"') do
        slurm.log_info("Trimtab: --%s=%s", name, value)
        options[name] = value
    end
end

function slurm_cli_pre_submit(options, offset)
    pcall(size, options)
    return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early)
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
    return slurm.SUCCESS
end
