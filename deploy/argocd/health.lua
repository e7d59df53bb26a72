-- Health of a ManifestWork or a ManifestWorkReplicaSet for Argo CD, from the conditions Ready and Stalled that the hub writes.
local hs = { status = "Progressing", message = "the hub has not seen this generation yet" }
local annotations = obj.metadata.annotations or {}
if annotations["workwire.dev/paused"] == "true" then
  return { status = "Suspended", message = "paused" }
end
local byType = {}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  byType[condition.type] = condition
end
local ready = byType["Ready"]
if ready == nil or ready.observedGeneration ~= obj.metadata.generation then
  return hs
end
hs.message = ready.message
if ready.status == "True" then
  hs.status = "Healthy"
elseif ready.status == "Unknown" then
  hs.status = "Unknown" -- applied, and nobody watches whether the objects are ready
else
  for _, kind in ipairs({ "Degraded", "Stalled" }) do
    if byType[kind] ~= nil and byType[kind].status == "True" then
      hs.status = "Degraded"
    end
  end
end
return hs
