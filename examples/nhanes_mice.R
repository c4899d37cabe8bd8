# The regression of examples/nhanes_regression.py with R's mice, for comparison.
#
# Rscript examples/nhanes_mice.R table.csv result.csv [m] [iterations]

suppressPackageStartupMessages(library(mice))

given <- commandArgs(trailingOnly = TRUE)
m <- if (length(given) > 2) as.integer(given[3]) else 20L
iterations <- if (length(given) > 3) as.integer(given[4]) else 5L # the default of mice
table <- read.csv(given[1], stringsAsFactors = TRUE)

imputed <- mice(table, m = m, maxit = iterations, seed = 1, printFlag = FALSE)
fits <- with(imputed, lm(sbp2 ~ age + gender + bmi + total_cholesterol + income_poverty_ratio + smoked_100))
pooled <- pool(fits)

result <- summary(pooled, conf.int = TRUE)
result$fmi <- pooled$pooled$fmi
result$version <- as.character(packageVersion("mice"))
write.csv(result, given[2], row.names = FALSE)
