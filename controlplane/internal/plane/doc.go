// Package plane runs one control plane: etcd, an API server, and the controllers of its role, each
// as a child process.
//
//	err := plane.Run(ctx, plane.Config{
//		Role: plane.Spoke, Dir: "/tmp/spoke", Nodes: 3,
//		Ready: func(r plane.Running) { fmt.Println(r.Kubeconfig) },
//	})
//
// Run returns when ctx ends or a child process ends, after it has stopped all child processes.
// programs.go lists the programs of a control plane, layout.go its files.
//
// Components are processes, not goroutines, because each of them sets global state: feature gates,
// klog flags, metrics registries, signal handlers and os.Exit.
package plane
