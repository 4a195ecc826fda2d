/* Follows a schedule under SMPI: what each rank sends and receives, round by round, with bytes that mean nothing.

   The file has the number of rounds and the bytes of the largest message, then for each round the number of messages and one line "src dst bytes" each.
   A rank posts what it receives and then what it sends, and waits for all of it: the rules of farandole's model. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size, rounds, largest;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  FILE *file = fopen(argv[1], "r");
  if (file == NULL || fscanf(file, "%d %d", &rounds, &largest) != 2) {
    fprintf(stderr, "cannot read %s\n", argv[1]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  char *bytes = SMPI_SHARED_MALLOC((size_t)largest);
  MPI_Request *requests = malloc(sizeof(MPI_Request) * 4 * (size_t)size);
  double begin = MPI_Wtime();
  for (int round = 0; round < rounds; round++) {
    int messages, posted = 0;
    if (fscanf(file, "%d", &messages) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < messages; i++) {
      int src, dst, count;
      if (fscanf(file, "%d %d %d", &src, &dst, &count) != 3) MPI_Abort(MPI_COMM_WORLD, 1);
      if (dst == rank) MPI_Irecv(bytes, count, MPI_BYTE, src, round, MPI_COMM_WORLD, &requests[posted++]);
      if (src == rank) MPI_Isend(bytes, count, MPI_BYTE, dst, round, MPI_COMM_WORLD, &requests[posted++]);
    }
    MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
  }
  double mine = MPI_Wtime() - begin, all;
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("time_s %.12g\n", all);
  fclose(file);
  free(requests);
  SMPI_SHARED_FREE(bytes);
  MPI_Finalize();
  return 0;
}
