// Package pending says of each ManifestWork how far its newest spec has got: the condition Delivered
// and status.delivery.
//
// A work is pending from the moment the hub sees its newest generation until a status of the agent
// for that generation is stored. [Tracker] holds pending works only. It learns of works from the
// cache, of publishes from the delivery engine, and of clusters from their ManagedClusters; decide.go
// decides, without I/O, what the condition says.
//
// A status that answers carries the condition with it ([Tracker.Answer]), so that a quick answer costs
// no request. What is not answered within [Config.Delay] is written by itself, one request per change
// of the cause, at most [maxWritesPerSecond] a second, and fewer while answers wait to be written. One
// queue has the times of all works.
//
// All that the next leader needs is in the API: a work whose status speaks of its generation is not
// pending. The times of the publishes since the last write are lost with a leader.
package pending
