// Package rollout decides which clusters of a Placement receive a new template now and which
// clusters wait.
//
// The package is pure: it reads no clock, does no I/O but for the database of time zones, and keeps no state between calls, so a hub
// that restarts continues a rollout where it was. [Strategy.Decide] takes the decision groups of
// the Placement, the status of every cluster with the current template, and the time. It returns a
// [Decision].
//
//	strategy, err := rollout.Parse(&ref.RolloutStrategy)
//	groups, err := rollout.GroupsOf(placement, decisions)
//	clusters[name] = rollout.StatusOf(works[name], upToDate(works[name]), now) // and Away, PresenceSince
//	decision := strategy.Decide(groups, clusters, now)
//	// Create or update the works of decision.Start. Decide again at decision.RequeueAt.
//
// # Strategies
//
// Groups are processed by index, and the clusters of a group in alphabetical order. A cluster that
// has the current template keeps it, whatever happens to the rollout.
//
// All starts every cluster at once.
//
// Progressive starts the mandatory groups one after the other, each with all its clusters at once.
// Every cluster of a mandatory group must succeed, without a failure and for minSuccessTime, before
// anything else starts. All other clusters follow as one sequence, in which at most maxConcurrency
// clusters hold a slot at a time. A cluster holds its slot from the moment it receives the template
// until minSuccessTime after it succeeded. A failed cluster holds its slot until it succeeds or
// progressDeadline has passed. When more than maxFailures clusters have failed or timed out, no
// further cluster starts. The rollout continues when enough of them recover.
//
// ProgressivePerGroup starts one group after the other, mandatory groups first. The next group
// starts when every cluster of the previous group has succeeded for minSuccessTime. Up to
// maxFailures clusters of a group may fail or time out instead. Mandatory groups tolerate none.
//
// # Clusters that are away
//
// A cluster that is not connected is away. It cannot answer, possibly for days. It must not delay
// the clusters that can, and it must receive the change when it returns. A cluster may also have
// gone away because of the change. The two cases are told apart by their order and by their number:
//
//   - A cluster that was away before it received the template is excused: it holds no slot, does
//     not time out, is no failure, and no group waits for it. In the sequence of Progressive, at
//     most maxConcurrency clusters that are away have the new template without having answered, so
//     that they do not all meet an unproven change when they return. The others wait until they are
//     back. A group gives the template to all its clusters, but after the first group the clusters
//     that are away wait until some cluster has succeeded.
//   - A cluster that went away with the template is missing. In the sequence of Progressive, up to
//     maxConcurrency missing clusters are excused as well. In a group of ProgressivePerGroup, as
//     many are excused as have succeeded in the group. In a mandatory group, none are. All other
//     missing clusters are treated as if they were present: they hold their slot, the next group
//     waits for them, and progressDeadline applies. A change that disconnects every cluster
//     therefore stops after 2 * maxConcurrency clusters, or within the first group.
//   - A mandatory group in which no cluster has succeeded is not complete, even if all of its
//     clusters are excused.
//
// A cluster that returns has the full progressDeadline again. A failure that was reported before
// the cluster went away still counts.
//
// # Plans
//
// [Plan.Decide] decides about all placements of a set by its RolloutPlan. It splits their clusters into stages, and has the
// strategies decide about each stage as if it were all there is. Clusters that must not start, since their stage waits or no
// window is open, are held: they count for the strategy, and take no turn. A stage starts when those before it are complete:
// no cluster that is present has yet to start, holds a slot or soaks, failures are within the budget, and some cluster, of
// it or a stage before, has succeeded. Nothing is remembered: a cluster of an earlier stage that is in progress again
// holds the later ones again.
//
// # Going back
//
// [Revisions.After] decides when a set whose rollout fails goes back to an earlier template. The way back is a rollout
// of that template by the same strategy, with one exception: a cluster that is away with the abandoned template receives
// the earlier one at once, so that it does not find the abandoned one when it returns.
package rollout
