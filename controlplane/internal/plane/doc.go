// Package plane runs one control plane: an etcd, an API server on it, and the
// controllers that belong to its role, each as a child process.
//
//	err := plane.Run(ctx, plane.Config{
//		Role: plane.Spoke, Dir: "/tmp/spoke", Nodes: 3,
//		Ready: func(r plane.Running) { fmt.Println(r.Kubeconfig) },
//	})
//
// Run returns when ctx ends or a child process does, and no child process is
// left then. What a control plane is made of is decided without doing
// anything (programs.go); what it keeps, and where, is in layout.go.
//
// Components are processes rather than goroutines because each of them sets
// up process-wide state: feature gates, klog flags, metrics registries,
// signal handlers and os.Exit.
package plane
