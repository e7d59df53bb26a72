// Package process runs child processes that never outlive their parent.
//
// The parent opens one Lifeline, a pipe whose writing end only it holds, and
// starts every child with it. A child calls HoldOn first thing in main: when
// the parent ends, however it ends, the kernel closes the pipe and the child
// ends itself. In the normal case the parent stops its children in the order
// it likes:
//
//	line, err := process.NewLifeline()
//	etcd, err := process.Start(process.Spec{Name: "etcd", Args: args, Dir: dir, Log: log, Lifeline: line})
//	select {
//	case <-etcd.Done(): // it ended by itself; etcd.Err() says how
//	case <-ctx.Done():
//		etcd.Stop(5 * time.Second)
//	}
//
// A pipe is used rather than Linux's parent-death signal because that one
// follows the thread, not the process, that started the child, and exists
// on Linux only.
package process
