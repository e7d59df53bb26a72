package order

import "slices"

// Cycle returns the works by which one depends on itself, from it to it; nil if it does not. Its cost is linear in the works
// that it depends on, and those depend on in turn.
func Cycle(work string, dependsOn func(string) []string) []string {
	type step struct {
		name string
		left []string // dependencies that were not followed yet
	}
	path, seen := []step{{work, dependsOn(work)}}, map[string]bool{}
	for len(path) > 0 {
		last := &path[len(path)-1]
		if len(last.left) == 0 {
			path = path[:len(path)-1]
			continue
		}
		next := last.left[0]
		last.left = last.left[1:]
		switch {
		case next == work:
			var names []string
			for _, s := range path {
				names = append(names, s.name)
			}
			return append(slices.Clip(names), work)
		case !seen[next]:
			seen[next] = true
			path = append(path, step{next, dependsOn(next)})
		}
	}
	return nil
}
