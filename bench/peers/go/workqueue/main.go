// The work queues of client-go and controller-runtime, and controller-runtime's loop, under the load of
// B14. It prints one line a measurement: what, workers, nanoseconds an item.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	_ "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func keys(count int) []string {
	made := make([]string, count)
	for i := range made {
		made[i] = fmt.Sprintf("namespace-%d/name-%d", i%100, i)
	}
	return made
}

type queue interface {
	Add(item string)
	Get() (string, bool)
	Done(item string)
	ShutDown()
}

// One adds, the workers take; from the first add until all is done.
func measure(q queue, items []string, workers int) time.Duration {
	var done sync.WaitGroup
	var count atomic.Int64
	begun := time.Now()
	for range workers {
		done.Go(func() {
			for {
				item, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(item)
				if count.Add(1) == int64(len(items)) {
					q.ShutDown()
				}
			}
		})
	}
	for _, item := range items {
		q.Add(item)
	}
	done.Wait()
	return time.Since(begun)
}

// How long a controller that does nothing takes for all keys, several times over.
func reconciles(count, rounds, workers int) time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make([]reconcile.Request, count)
	for i := range requests {
		requests[i].NamespacedName = types.NamespacedName{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("name-%d", i)}
	}
	var left atomic.Int64
	round := make(chan struct{}, 1)
	skip := true
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	ready := make(chan struct{})
	c, err := controller.NewUnmanaged("bench", controller.Options{
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      &skip,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			queue = priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
			close(ready)
			return queue
		},
		Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			if left.Add(-1) == 0 {
				round <- struct{}{}
			}
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		panic(err)
	}
	go func() {
		if err := c.Start(ctx); err != nil {
			panic(err)
		}
	}()
	<-ready
	begun := time.Now()
	for range rounds {
		left.Store(int64(count))
		for _, request := range requests {
			queue.Add(request)
		}
		<-round
	}
	return time.Since(begun)
}

func main() {
	ctrllog.SetLogger(logr.Discard())
	number := func(at int) int {
		n, err := strconv.Atoi(os.Args[at])
		if err != nil {
			panic(err)
		}
		return n
	}
	count, keysOfReconcile, rounds := number(1), number(2), number(3)
	items := keys(count)
	for _, text := range strings.Split(os.Args[4], ",") {
		workers, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		show := func(what string, took time.Duration, items int) {
			fmt.Printf("%s %d %.1f\n", what, workers, float64(took.Nanoseconds())/float64(items))
		}
		named := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "bench" + text})
		show("client-go", measure(named, items, workers), count)
		show("client-go-without-metrics", measure(workqueue.NewTyped[string](), items, workers), count)
		show("controller-runtime", measure(priorityqueue.New[string]("priority"+text), items, workers), count)
		show("reconcile", reconciles(keysOfReconcile, rounds, workers), keysOfReconcile*rounds)
	}
}
