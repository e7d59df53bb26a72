// Package rollout decides which clusters of a placement get a change now, and which wait.
//
// It is pure: it reads no clock and does no I/O. What goes in is the strategy, the decision groups of the placement,
// and for every cluster how it does with the current template; what comes out is a [Decision]. The same input gives
// the same decision, and nothing is remembered between two calls: a hub that restarts goes on where it was.
//
//	strategy, err := rollout.Parse(&ref.RolloutStrategy)
//	groups, err := rollout.GroupsOf(placement, decisions)
//	for _, group := range groups {
//		for _, name := range group.Clusters {
//			cluster := rollout.StatusOf(works[name], upToDate(works[name]), now)
//			cluster.Away, cluster.PresenceSince = presence(name)
//			clusters[name] = cluster
//		}
//	}
//	decision := strategy.Decide(groups, clusters, now)
//	// create or update the works of decision.Begin; look again at decision.Again
//
// # Strategies
//
// Within a group, clusters go in alphabetical order; groups go by index. A cluster that has the current template keeps
// it, whatever becomes of the rollout.
//
// All begins with every cluster at once.
//
// Progressive begins with mandatory groups, one after the other, each with all its clusters at once. Each must succeed
// without a failure, and for minSuccessTime, before anything else is begun with. Then come all other clusters in one
// row: at most maxConcurrency of them hold a place, from the moment they get the template until minSuccessTime after
// they succeeded. One that failed holds its place until it succeeds or progressDeadline is over. When more than
// maxFailures have failed or timed out, no further cluster is begun with; should enough of them recover, the rollout
// goes on.
//
// ProgressivePerGroup goes group by group, mandatory ones first. The next group begins when every cluster of the one
// before succeeded, for minSuccessTime, but for at most maxFailures of them, which failed or timed out. Mandatory
// groups tolerate none.
//
// # Clusters that are away
//
// A cluster that is not connected cannot answer, and may not do so for days. It must not hold up those that can, and
// it must get the change when it is back. But a cluster may also have gone away because of the change. The two are
// told apart by what came first, and by how many there are:
//
//   - A cluster that was away before it got the template is excused: it holds no place, does not time out, is no
//     failure, and no group waits for it. In the row of Progressive, at most maxConcurrency of them have the new
//     template without having answered, so that no crowd of them meets an unproven change when they all return; the
//     others wait until they are back. A group gives it to all its clusters; but after the first group, those that are
//     away wait until some cluster has succeeded.
//   - A cluster that went away with the template is missing. In the row of Progressive, up to maxConcurrency missing
//     clusters are excused as well; in a group of ProgressivePerGroup as many as succeeded in it; in a mandatory group
//     none. Beyond that they are treated as if they were there: they hold their place, the next group waits for them,
//     and progressDeadline counts. So a change that cuts every cluster off stops after 2 * maxConcurrency of them, or
//     within the first group.
//   - A mandatory group of which no cluster has succeeded is not done, even if all of them are excused.
//
// A cluster that returns has the whole of progressDeadline again. While a failure that was reported before a cluster
// went away stands, it counts as one.
package rollout
