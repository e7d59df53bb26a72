// Package process runs child processes that never outlive their parent.
//
// The parent opens one Lifeline, a pipe whose write end only it holds, and starts every child with
// it. A child calls ExitWithParent at the start of main: when the parent ends for any reason, the
// kernel closes the pipe and the child exits. Normally the parent stops its children in an order of
// its own:
//
//	line, err := process.NewLifeline()
//	etcd, err := process.Start(process.Spec{Name: "etcd", Args: args, Dir: dir, Log: log, Lifeline: line})
//	select {
//	case <-etcd.Done(): // it ended by itself; etcd.Err() returns how
//	case <-ctx.Done():
//		etcd.Stop(5 * time.Second)
//	}
//
// Linux's parent-death signal is no alternative: it is sent at the end of the thread, not of the
// process, that started the child, and exists on Linux only.
package process
